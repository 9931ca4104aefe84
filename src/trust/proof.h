/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mutual proof of docs/internals/tenants.md: keys derived, macs made and compared.  Who sends
 * what when is the transports' (stream/prove.c, listen/prove.c).
 */
#ifndef SODA_TRUST_PROOF_H
#define SODA_TRUST_PROOF_H

#include "base/shares.h"
#include "trust/crypto.h"
#include "wire/proof.h"

#define SODA_PROOF_LABEL_BYTES 16u

/* All that both sides have said before either proves anything; bytes as they travelled. */
struct soda_transcript {
	uint8_t label[SODA_PROOF_LABEL_BYTES]; /* of the mac that is made of it */
	uint8_t server[SODA_WIRE_TENANT_MAX + 1];
	uint8_t hello[SODA_WIRE_HELLO_BYTES];
	uint8_t ask[SODA_WIRE_ASK_BYTES];
	uint8_t nonce[SODA_WIRE_NONCE_BYTES]; /* the server's */
};

/* Whose mac; each has a label of its own. */
enum soda_proof_of {
	SODA_PROOF_SERVER, /* by the server's key of the tenant, and so the next */
	SODA_PROOF_CLIENT,
	SODA_PROOF_SESSION, /* by the client's key */
};

/*
 * What a connection has proved, for the daemon behind a listener, until its hello has returned.
 */
struct soda_proved {
	void *tenant; /* what soda_guard.find gave */
	struct soda_transcript transcript;
	uint8_t key[SODA_KEY_BYTES]; /* of the connection */
	uint8_t session[SODA_WIRE_MAC_BYTES];
	size_t mac_bytes; /* of the session mac, that travelled: fewer than all on verbs */
};

struct soda_flow; /* base/flow.h */

/* Who decides on a listener that asks for proofs: the daemon. */
struct soda_guard {
	const char *server; /* its name; constant */
	/*
	 * The key of a tenant that has this id: 0; -EACCES: there is no such tenant, or it has no
	 * such key (any more); tenant NULL: whichever has this key; for *why, which holds 128
	 * bytes, a sentence for the log. Any thread, does not block.
	 */
	int (*find)(void *arg, const char *tenant, const uint8_t id[SODA_WIRE_KEY_ID_BYTES],
		    uint8_t key[SODA_KEY_BYTES], void **tenant_p, char *why);
	/* Whose share a tenant's data connections have. NULL: there are no shares. Any thread. */
	struct soda_flow *(*flow)(void *arg, void *tenant);
	/* Which tenant it is, of how many, for places that they share. NULL: so, too. Any thread.
	 */
	struct soda_holder (*holder)(void *arg, void *tenant);
	void *arg;
};

/* The server's key of a tenant, of the tenant's key and the server's name. Errors of soda_hkdf. */
int soda_key_for_server(const uint8_t tenant_key[SODA_KEY_BYTES], const char *server,
			uint8_t key[SODA_KEY_BYTES]);
int soda_key_id(const uint8_t key[SODA_KEY_BYTES], uint8_t id[SODA_WIRE_KEY_ID_BYTES]);

/* The same key on a connection by TLS only: channel is soda_tls_channel()'s. */
int soda_key_bind(uint8_t key[SODA_KEY_BYTES], const uint8_t channel[SODA_KEY_BYTES]);

/* Begin a transcript with what is known when the ASK is: hello, as it travels. */
void soda_transcript_begin(struct soda_transcript *t, const char *server,
			   const uint8_t hello[SODA_WIRE_HELLO_BYTES],
			   const uint8_t ask[SODA_WIRE_ASK_BYTES]);

int soda_proof_mac(const struct soda_transcript *t, enum soda_proof_of of,
		   const uint8_t key[SODA_KEY_BYTES], uint8_t mac[SODA_WIRE_MAC_BYTES]);
/* The mac's first bytes, as many as have come: 0; -EACCES: it is another one. */
int soda_proof_check(const struct soda_transcript *t, enum soda_proof_of of,
		     const uint8_t key[SODA_KEY_BYTES], const uint8_t *mac, size_t bytes);

/* The connection's key, of the server's key of the tenant. */
int soda_connection_key(const struct soda_transcript *t, const uint8_t key[SODA_KEY_BYTES],
			uint8_t connection[SODA_KEY_BYTES]);
/* The key of a client that was made on this connection. */
int soda_client_key(const uint8_t connection[SODA_KEY_BYTES], uint8_t client[SODA_KEY_BYTES]);
/* The mac behind a welcome, as it travels. */
int soda_welcome_mac(const uint8_t connection[SODA_KEY_BYTES],
		     const uint8_t welcome[SODA_WIRE_WELCOME_BYTES],
		     uint8_t mac[SODA_WIRE_MAC_BYTES]);

#endif
