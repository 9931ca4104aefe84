/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/proof.h"

#include <errno.h>
#include <string.h>

#define SERVER_KEY "SODA server key"
#define KEY_ID "SODA key id"
#define CLIENT_KEY "SODA client key"
#define CONNECTION "SODA connection"
#define WELCOME "SODA welcome"
#define BOUND "SODA TLS bound"

static const char labels[][SODA_PROOF_LABEL_BYTES] = {
	[SODA_PROOF_SERVER] = "SODA server",
	[SODA_PROOF_CLIENT] = "SODA client",
	[SODA_PROOF_SESSION] = "SODA session",
};

/* What is hashed is the struct itself. */
_Static_assert(sizeof(struct soda_transcript) == 272, "no padding");
_Static_assert(sizeof(struct soda_transcript) <= SODA_HKDF_INFO_MAX, "fits");

int soda_key_for_server(const uint8_t tenant_key[SODA_KEY_BYTES], const char *server,
			uint8_t key[SODA_KEY_BYTES])
{
	char info[sizeof(SERVER_KEY) + SODA_WIRE_TENANT_MAX];
	size_t bytes = strnlen(server, SODA_WIRE_TENANT_MAX);

	memcpy(info, SERVER_KEY, sizeof(SERVER_KEY));
	memcpy(info + sizeof(SERVER_KEY), server, bytes);
	return soda_hkdf(tenant_key, NULL, 0, info, sizeof(SERVER_KEY) + bytes, key);
}

int soda_key_id(const uint8_t key[SODA_KEY_BYTES], uint8_t id[SODA_WIRE_KEY_ID_BYTES])
{
	uint8_t mac[SODA_WIRE_MAC_BYTES];
	int r = soda_hmac(key, SODA_KEY_BYTES, KEY_ID, sizeof(KEY_ID), mac);

	memcpy(id, mac, SODA_WIRE_KEY_ID_BYTES);
	return r;
}

void soda_transcript_begin(struct soda_transcript *t, const char *server,
			   const uint8_t hello[SODA_WIRE_HELLO_BYTES],
			   const uint8_t ask[SODA_WIRE_ASK_BYTES])
{
	memset(t, 0, sizeof(*t));
	memcpy(t->server, server, strnlen(server, SODA_WIRE_TENANT_MAX));
	memcpy(t->hello, hello, SODA_WIRE_HELLO_BYTES);
	memcpy(t->ask, ask, SODA_WIRE_ASK_BYTES);
}

int soda_proof_mac(const struct soda_transcript *t, enum soda_proof_of of,
		   const uint8_t key[SODA_KEY_BYTES], uint8_t mac[SODA_WIRE_MAC_BYTES])
{
	struct soda_transcript text = *t;

	memcpy(text.label, labels[of], sizeof(text.label));
	return soda_hmac(key, SODA_KEY_BYTES, &text, sizeof(text), mac);
}

int soda_proof_check(const struct soda_transcript *t, enum soda_proof_of of,
		     const uint8_t key[SODA_KEY_BYTES], const uint8_t *mac, size_t bytes)
{
	uint8_t right[SODA_WIRE_MAC_BYTES];
	int r = soda_proof_mac(t, of, key, right);

	if (r)
		return r;
	if (bytes < SODA_WIRE_BRIEF_MAC_BYTES || bytes > sizeof(right))
		return -EACCES;
	return soda_mac_equal(right, mac, bytes) ? 0 : -EACCES;
}

int soda_key_bind(uint8_t key[SODA_KEY_BYTES], const uint8_t channel[SODA_KEY_BYTES])
{
	uint8_t bound[SODA_KEY_BYTES];
	int r = soda_hkdf(key, channel, SODA_KEY_BYTES, BOUND, sizeof(BOUND), bound);

	if (!r)
		memcpy(key, bound, sizeof(bound));
	soda_wipe(bound, sizeof(bound));
	return r;
}

int soda_connection_key(const struct soda_transcript *t, const uint8_t key[SODA_KEY_BYTES],
			uint8_t connection[SODA_KEY_BYTES])
{
	struct soda_transcript text = *t;
	uint8_t nonces[2 * SODA_WIRE_NONCE_BYTES];

	memcpy(text.label, CONNECTION, sizeof(CONNECTION));
	memcpy(nonces, t->ask, SODA_WIRE_NONCE_BYTES); /* the ASK begins with the client's */
	memcpy(nonces + SODA_WIRE_NONCE_BYTES, t->nonce, SODA_WIRE_NONCE_BYTES);
	return soda_hkdf(key, nonces, sizeof(nonces), &text, sizeof(text), connection);
}

int soda_client_key(const uint8_t connection[SODA_KEY_BYTES], uint8_t client[SODA_KEY_BYTES])
{
	return soda_hkdf(connection, NULL, 0, CLIENT_KEY, sizeof(CLIENT_KEY), client);
}

int soda_welcome_mac(const uint8_t connection[SODA_KEY_BYTES],
		     const uint8_t welcome[SODA_WIRE_WELCOME_BYTES],
		     uint8_t mac[SODA_WIRE_MAC_BYTES])
{
	uint8_t text[sizeof(WELCOME) + SODA_WIRE_WELCOME_BYTES];

	memcpy(text, WELCOME, sizeof(WELCOME));
	memcpy(text + sizeof(WELCOME), welcome, SODA_WIRE_WELCOME_BYTES);
	return soda_hmac(connection, SODA_KEY_BYTES, text, sizeof(text), mac);
}
