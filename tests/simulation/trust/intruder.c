/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "../disk.h"
#include "../net.h"
#include "../world.h"
#include "tenants.h"
#include "transport/api/transport.h"
#include "trust/identity.h"
#include "trust/proof.h"

enum { PATIENCE_MS = 8000 };

/* Ways in. */
enum way {
	NOBODY,	       /* without a key */
	WRONG_KEY,     /* a tenant's name and key's number, without the key */
	NO_KEY_OF_ANY, /* a key that nobody has */
	ELSEWHERE,     /* a key for a server of another name */
	OF_THE_HOST,   /* a right key, and the client that the application is to the server... */
	ITS_DATA,      /* ...or one connection more of that... */
	BY_A_TOKEN,    /* ...or by a token that nobody was given... */
	STOLEN,	       /* ...or, as another tenant, by the application's own */
	AS_AN_AGENT,   /* a right key, of a tenant that is no agent */
	WAYS
};

struct attempt {
	enum way way;
	struct soda_identity *identity;
	struct soda_wire_hello hello;
	struct soda_conn_options opt;
	uint8_t client_key[SODA_KEY_BYTES], token[SODA_KEY_BYTES]; /* the token is shorter */
};

/* It says that it is the application. */
static bool of_the_host(const struct attempt *a)
{
	return a->way >= OF_THE_HOST && a->way <= STOLEN;
}

/* false: nobody knows the application yet, or there is nothing to be stolen. */
static bool pretend(struct attempt *a)
{
	a->hello.client_id = sim_net_welcomed(SIM_HOST, SIM_SERVER).client;
	if (a->way == ITS_DATA)
		a->opt.kind = SODA_CONN_DATA;
	if (a->way == BY_A_TOKEN || a->way == STOLEN)
		a->opt.token = a->token;
	return a->hello.client_id &&
	       (a->way != STOLEN || (!plan.same_tenant && sim_host_token(a->token)));
}

static void identify(struct attempt *a, const char *address)
{
	const char *path = plan.same_tenant ? SIM_TENANT_KEY_HOST : SIM_TENANT_KEY_OTHER;
	const char *server = a->way == ELSEWHERE ? "elsewhere" : NULL;
	struct soda_conf_error err = { "" };
	char name[32];

	if (soda_identity_load(NULL, sim_private_name(path, name), server, address, &a->identity,
			       &err))
		sim_fail("an intruder has no key: %s", err.text);
	if (a->way == WRONG_KEY || a->way == NO_KEY_OF_ANY)
		a->identity->key[sim_below(SODA_KEY_BYTES)] ^= 1u << sim_below(8);
	if (a->way == NO_KEY_OF_ANY)
		soda_key_id(a->identity->key, a->identity->key_id);
}

/* false: that way there is none. */
static bool prepare(struct attempt *a, enum way way, const char *address)
{
	*a = (struct attempt){
		.way = way,
		.hello = { .chunk_bytes = SODA_WIRE_PAGE,
			   .uid = SIM_DISK_USER,
			   .gid = SIM_DISK_USER,
			   .pid = 4713,
			   .epoch = sim_between(1, 1 << 20) },
		.opt = { .kind = SODA_CONN_CONTROL, .depth = 1, .timeout_ms = PATIENCE_MS }
	};
	sim_tenants_new_key(a->client_key);
	sim_tenants_new_key(a->token);
	if (of_the_host(a) && !pretend(a))
		return false;
	if (a->way != NOBODY)
		identify(a, address);
	if (a->way == AS_AN_AGENT)
		a->hello.features = 1u << SODA_FEATURE_AGENTS_SHIFT;
	a->opt.identity = a->identity;
	a->opt.client_key = a->client_key;
	return true;
}

static void intrude(enum way way, enum sim_process to)
{
	struct soda_wire_welcome w;
	struct soda_conn *conn = NULL;
	struct soda_why why = { "" };
	struct attempt a;
	int ret;

	if (!prepare(&a, way, sim_net_address(to)))
		return;
	ret = soda_conn_connect(sim_net_address(to), &a.hello, &a.opt, &conn, &w, &why);
	sim_note("an intruder (%d) at %s: %d %s", a.way, sim_net_name(to), ret, why.text);
	/* where nobody knows that client any more it may be a new one */
	if (!ret &&
	    (!of_the_host(&a) || a.way == ITS_DATA || w.known || w.client_id == a.hello.client_id))
		sim_fail("TRESPASS: an intruder (%d) is let in by %s", a.way, sim_net_name(to));
	soda_conn_close(conn);
	soda_identity_free(a.identity);
}

void sim_tenants_intrude(enum sim_process to)
{
	intrude((enum way)sim_below(WAYS), to);
}

static void *steal(void *arg)
{
	intrude(STOLEN, SIM_AGENT);
	return NULL;
}

void sim_tenants_steal(void)
{
	sim_detach(sim_spawn(SIM_WORLD, "thief", steal, NULL));
}
