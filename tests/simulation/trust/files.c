/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>

#include "../disk.h"
#include "../net.h"
#include "../world.h"
#include "tenants.h"
#include "trust/identity.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"

enum { TEXT = 4096 };

struct sim_tenant_state sim_tenants[SIM_TENANTS];

const char *const sim_tenant_names[SIM_TENANTS] = { "host", "other", "agents" };
struct text {
	char text[TEXT];
	size_t bytes;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	t->bytes += (size_t)vsnprintf(t->text + t->bytes, TEXT - t->bytes, fmt, args);
	va_end(args);
	if (t->bytes >= TEXT)
		sim_fail("a tenants file has no room");
}

const char *sim_tenants_file(enum sim_process p)
{
	static char paths[SIM_PROCESSES][32];

	snprintf(paths[p], sizeof(paths[p]), "/sim-tenants-%s", sim_net_name(p));
	return paths[p];
}

/* What the file of this process has: the server's key of the tenant, which the others do not. */
static void add_key(struct text *t, const char *what, const uint8_t root[SODA_KEY_BYTES],
		    enum sim_process p)
{
	uint8_t key[SODA_KEY_BYTES];
	char hex[SODA_KEY_TEXT_BYTES];

	soda_key_for_server(root, sim_net_name(p), key);
	add(t, "%s = %s\n", what, soda_key_format(key, sizeof(key), hex));
}

static void add_tenant(struct text *t, enum sim_tenant who, enum sim_process p)
{
	const struct sim_tenant_state *s = &sim_tenants[who];
	char until[SODA_UTC_BYTES];

	add(t, "[tenant %s]\n", sim_tenant_names[who]);
	add_key(t, "key", s->key, p);
	if (s->has_previous) {
		add_key(t, "previous", s->previous, p);
		add(t, "previous-until = %s\n", soda_utc_format((time_t)s->previous_until, until));
	}
	if (who == SIM_TENANT_AGENT)
		add(t, "role = agent\n");
	if (s->quota)
		add(t, "quota = %llu\n", (unsigned long long)s->quota);
	if (p >= SIM_SERVER && plan.server.files && (who != SIM_TENANT_OTHER || plan.other_files))
		add(t, "export = rw " SIM_DISK_EXPORT "\n");
}

void sim_tenants_write(enum sim_process p)
{
	struct text t = { .bytes = 0 };

	add(&t, "[server]\nname = %s\n", sim_net_name(p));
	for (enum sim_tenant who = 0; who < SIM_TENANTS; who++)
		if (!(sim_tenants[who].removed >> p & 1))
			add_tenant(&t, who, p);
	sim_private_put(sim_tenants_file(p), t.text, t.bytes);
}

void sim_tenants_write_key(enum sim_tenant who)
{
	struct text t = { .bytes = 0 };
	char hex[SODA_KEY_TEXT_BYTES], path[32];

	add(&t, "[tenant]\nname = %s\nkey = %s\n", sim_tenant_names[who],
	    soda_key_format(sim_tenants[who].key, SODA_KEY_BYTES, hex));
	snprintf(path, sizeof(path), "/sim-key-%s", sim_tenant_names[who]);
	sim_private_put(path, t.text, t.bytes);
}

void sim_tenants_new_key(uint8_t key[SODA_KEY_BYTES])
{
	for (size_t i = 0; i < SODA_KEY_BYTES; i++)
		key[i] = (uint8_t)sim_random();
}

void sim_tenants_make(void)
{
	if (!plan.agent_settings.tenants && !plan.server.tenants)
		return;
	sim_tenants[SIM_TENANT_HOST].quota = plan.tenant_quota;
	for (enum sim_tenant t = 0; t < SIM_TENANTS; t++) {
		sim_tenants_new_key(sim_tenants[t].key);
		sim_tenants_write_key(t);
	}
	if (plan.agent_settings.tenants)
		sim_tenants_write(SIM_AGENT);
	for (unsigned i = 0; plan.server.tenants && i < plan.servers; i++)
		sim_tenants_write(SIM_SERVER + i);
}
