/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/tenants.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"

enum { TENANTS_SHOWN = 64 }; /* so that Prometheus need not remember more series */

static struct soda_tenant *find_locked(struct soda_tenants *tenants, const char *name)
{
	struct soda_tenant *t = tenants->list;

	while (t && strcmp(t->name, name))
		t = t->next;
	return t;
}

/* The guard: which key has this id? */

static bool is_id(const uint8_t *a, const uint8_t *b)
{
	return soda_mac_equal(a, b, SODA_WIRE_KEY_ID_BYTES);
}

static int find_key_locked(const struct soda_tenant *t, const uint8_t *id, uint8_t *key, char *why)
{
	char until[SODA_UTC_BYTES];

	if (is_id(id, t->key_id)) {
		memcpy(key, t->entry.key, SODA_KEY_BYTES);
		return 0;
	}
	if (!t->entry.has_previous || !is_id(id, t->previous_id)) {
		snprintf(why, 128, "another key than its own, or a key for another server's name");
		return -EACCES;
	}
	if (time(NULL) > t->entry.previous_until) {
		snprintf(why, 128, "its previous key, which was valid until %s",
			 soda_utc_format(t->entry.previous_until, until));
		return -EACCES;
	}
	memcpy(key, t->entry.previous, SODA_KEY_BYTES);
	return 0;
}

static struct soda_tenant *find_by_id_locked(struct soda_tenants *tenants, const uint8_t *id)
{
	struct soda_tenant *t = tenants->list;

	while (t && (t->removed || (!is_id(id, t->key_id) &&
				    (!t->entry.has_previous || !is_id(id, t->previous_id)))))
		t = t->next;
	return t;
}

static int find_key(void *arg, const char *name, const uint8_t *id, uint8_t *key, void **tenant_p,
		    char *why)
{
	struct soda_tenants *tenants = arg;
	struct soda_tenant *t;
	int r = -EACCES;

	pthread_mutex_lock(&tenants->lock);
	t = name ? find_locked(tenants, name) : find_by_id_locked(tenants, id);
	if (!t || t->removed)
		snprintf(why, 128, name ? "there is none of that name" : "no tenant has this key");
	else
		r = find_key_locked(t, id, key, why);
	pthread_mutex_unlock(&tenants->lock);
	if (t && r)
		atomic_fetch_add(&t->refused, 1);
	*tenant_p = t;
	return r;
}

/* Reading the file */

/* What a tenant will be, before anything changes: key ids computed. */
struct coming {
	uint8_t key_id[SODA_WIRE_KEY_ID_BYTES], previous_id[SODA_WIRE_KEY_ID_BYTES];
	struct soda_tenant *record; /* made for it, or NULL: there is one */
	void *own;		    /* the daemon's */
};

static void drop_coming(struct soda_tenants *tenants, struct coming *coming, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (coming[i].own)
			tenants->ops->discard(coming[i].own);
		soda_secret_free(coming[i].record, tenants->ops->record_bytes);
	}
	free(coming);
}

static int prepare(struct soda_tenants *tenants, const struct soda_tenant_entry *entry,
		   struct coming *c, struct soda_conf_error *err)
{
	int r = soda_key_id(entry->key, c->key_id);

	if (!r && entry->has_previous)
		r = soda_key_id(entry->previous, c->previous_id);
	if (r)
		return soda_conf_fail(err, r, "cannot compute with keys: %s", soda_strerror(r));
	if (tenants->ops->prepare)
		r = tenants->ops->prepare(tenants->arg, entry, &c->own, err);
	if (r)
		return r;
	if (find_locked(tenants, entry->name)) /* this thread alone changes the list */
		return 0;
	c->record = soda_secret_new(tenants->ops->record_bytes);
	return c->record ? 0 : soda_conf_fail(err, -ENOMEM, "out of memory");
}

static struct soda_flow *flow_of(void *arg, void *tenant)
{
	return &((struct soda_tenant *)tenant)->flow;
}

struct soda_holder soda_tenant_holder(struct soda_tenants *tenants,
				      const struct soda_tenant *tenant)
{
	if (!tenant)
		return (struct soda_holder){ 0 };
	return (struct soda_holder){ tenant->number, atomic_load(&tenants->there) };
}

static struct soda_holder holder_of(void *arg, void *tenant)
{
	return soda_tenant_holder(arg, tenant);
}

static void add_locked(struct soda_tenants *tenants, struct soda_tenant *t, const char *name)
{
	struct soda_tenant **end = &tenants->list;

	memcpy(t->name, name, sizeof(t->name));
	soda_flow_init(&t->flow);
	t->number = ++tenants->n;
	while (*end)
		end = &(*end)->next;
	*end = t;
}

static void apply_locked(struct soda_tenants *tenants, const struct soda_tenant_entry *entry,
			 struct coming *c)
{
	struct soda_tenant *t = c->record;

	if (t)
		add_locked(tenants, t, entry->name);
	else
		t = find_locked(tenants, entry->name);
	c->record = NULL;
	t->entry = *entry;
	t->entry.exports_n = 0; /* the file's */
	memcpy(t->key_id, c->key_id, sizeof(t->key_id));
	memcpy(t->previous_id, c->previous_id, sizeof(t->previous_id));
	t->removed = false;
	soda_flow_set(&t->flow, entry->rate, entry->requests, entry->weight);
	if (tenants->ops->apply)
		tenants->ops->apply(tenants->arg, t, entry, c->own);
}

/* All or nothing. */
static int apply(struct soda_tenants *tenants, const struct soda_tenants_file *file,
		 struct soda_conf_error *err)
{
	struct coming *coming = calloc(file->n ? file->n : 1, sizeof(*coming));
	int r = coming ? 0 : soda_conf_fail(err, -ENOMEM, "out of memory");

	for (unsigned i = 0; i < file->n && !r; i++)
		r = prepare(tenants, &file->tenants[i], &coming[i], err);
	if (!r) {
		pthread_mutex_lock(&tenants->lock);
		for (unsigned i = 0; i < file->n; i++)
			apply_locked(tenants, &file->tenants[i], &coming[i]);
		atomic_store(&tenants->there, file->n); /* those that it lacks are removed next */
		pthread_mutex_unlock(&tenants->lock);
	}
	if (coming)
		drop_coming(tenants, coming, file->n);
	return r;
}

int soda_tenants_start(struct soda_tenants *tenants, const char *path,
		       const struct soda_tenants_ops *ops, void *arg)
{
	struct soda_tenants_file file = { .n = 0 };
	struct soda_conf_error err = { "" };
	int r;

	*tenants = (struct soda_tenants){ .path = path, .ops = ops, .arg = arg };
	pthread_mutex_init(&tenants->lock, NULL);
	if (!path)
		return 0;
	r = soda_crypto_ready(&err);
	if (!r)
		r = soda_tenants_file_read(path, &file, &err);
	if (!r)
		r = apply(tenants, &file, &err);
	if (r)
		soda_log_error("--tenants: %s", err.text);
	memcpy(tenants->server, file.server, sizeof(tenants->server));
	tenants->guard = (struct soda_guard){ .server = tenants->server,
					      .find = find_key,
					      .flow = flow_of,
					      .holder = holder_of,
					      .arg = tenants };
	soda_tenants_file_free(&file);
	return r;
}

static void remove_missing(struct soda_tenants *tenants, const struct soda_tenants_file *file,
			   void (*gone)(void *arg, struct soda_tenant *tenant), void *arg)
{
	for (struct soda_tenant *t = tenants->list; t; t = t->next) {
		bool was;

		if (soda_tenants_file_find(file, t->name))
			continue;
		pthread_mutex_lock(&tenants->lock);
		was = t->removed;
		t->removed = true;
		soda_wipe(&t->entry, sizeof(t->entry));
		pthread_mutex_unlock(&tenants->lock);
		if (was)
			continue;
		soda_log_info("tenant %s has been removed: its connections end, and its memory is "
			      "freed",
			      t->name);
		gone(arg, t);
	}
}

void soda_tenants_reload(struct soda_tenants *tenants,
			 void (*gone)(void *arg, struct soda_tenant *tenant), void *arg)
{
	struct soda_tenants_file file = { .n = 0 };
	struct soda_conf_error err = { "" };
	int r = soda_tenants_file_read(tenants->path, &file, &err);

	if (!r && strcmp(file.server, tenants->server))
		r = soda_conf_fail(&err, -EINVAL,
				   "%.100s: the server is %s, and its name cannot change to %s "
				   "while it runs",
				   tenants->path, tenants->server, file.server);
	if (!r)
		r = apply(tenants, &file, &err);
	if (r) {
		soda_log_error("the tenants stay as they were: %s", err.text);
	} else {
		remove_missing(tenants, &file, gone, arg);
		soda_log_info("%s read again: %u tenants", tenants->path, file.n);
	}
	soda_tenants_file_free(&file);
}

void soda_tenants_stop(struct soda_tenants *tenants)
{
	while (tenants->list) {
		struct soda_tenant *t = tenants->list;

		tenants->list = t->next;
		if (tenants->ops->destroyed)
			tenants->ops->destroyed(t);
		soda_flow_destroy(&t->flow);
		soda_secret_free(t, tenants->ops->record_bytes);
	}
	pthread_mutex_destroy(&tenants->lock);
}

enum soda_role soda_tenant_role(struct soda_tenants *tenants, const struct soda_tenant *tenant)
{
	enum soda_role role;

	pthread_mutex_lock(&tenants->lock);
	role = tenant->entry.role;
	pthread_mutex_unlock(&tenants->lock);
	return role;
}

bool soda_tenant_removed(struct soda_tenants *tenants, const struct soda_tenant *tenant)
{
	bool removed;

	pthread_mutex_lock(&tenants->lock);
	removed = tenant->removed;
	pthread_mutex_unlock(&tenants->lock);
	return removed;
}

int soda_tenant_admit(struct soda_tenants *tenants, const struct soda_tenant *tenant,
		      const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		      struct soda_why *why)
{
	if (soda_wire_agents(hello) && soda_tenant_role(tenants, tenant) != SODA_ROLE_AGENT) {
		snprintf(why->text, sizeof(why->text),
			 "by way of an agent, and the role of tenant %s does not allow that: 'role "
			 "= agent' in the server's tenants file",
			 tenant->name);
		return -EPERM;
	}
	if ((info->local || info->unmetered) && soda_tenant_limited(tenant)) {
		snprintf(why->text, sizeof(why->text),
			 info->local ? "tenant %s has a rate, and over shm its programs would use "
				       "the server's memory past it: connect by tcp"
				     : "tenant %s has a rate, and over verbs requests do not wait "
				       "for it: connect by tcp",
			 tenant->name);
		return -EPERM;
	}
	return 0;
}

static int check_tenant(const struct soda_tenant *tenant, const struct soda_proved *proved,
			struct soda_why *why)
{
	if (tenant == proved->tenant)
		return 0;
	snprintf(why->text, sizeof(why->text), "this client is another tenant's");
	return -EPERM;
}

int soda_tenant_owns(const struct soda_tenant *tenant, const uint8_t key[SODA_KEY_BYTES],
		     const struct soda_proved *proved, struct soda_why *why)
{
	if (check_tenant(tenant, proved, why))
		return -EPERM;
	if (soda_proof_check(&proved->transcript, SODA_PROOF_SESSION, key, proved->session,
			     proved->mac_bytes)) {
		snprintf(why->text, sizeof(why->text),
			 "the proof for this client id is wrong: it is another process's");
		return -ESTALE;
	}
	return 0;
}

int soda_tenant_adopts(const struct soda_tenant *tenant, struct soda_tokens *tokens,
		       const struct soda_wire_hello *hello, const struct soda_proved *proved,
		       struct soda_why *why)
{
	const char *sentence = "a token is shown on a control connection";
	uint8_t token[SODA_WIRE_TOKEN_BYTES];
	int r = hello->kind == SODA_CONN_CONTROL ? 0 : -ESTALE;

	if (check_tenant(tenant, proved, why))
		return -EPERM;
	memcpy(token, proved->session, sizeof(token));
	if (!r)
		r = soda_token_show(token, proved->key);
	if (!r)
		r = soda_tokens_check(tokens, token, soda_now_ms(), &sentence);
	soda_wipe(token, sizeof(token));
	if (r == -ESTALE)
		snprintf(why->text, sizeof(why->text), "%s", sentence);
	return r;
}

/* name NULL: the one of this number. */
static const struct soda_tenant *look_up(struct soda_tenants *tenants, const char *name,
					 size_t bytes, uint32_t number)
{
	const struct soda_tenant *t;

	pthread_mutex_lock(&tenants->lock);
	t = tenants->list;
	while (t && (t->removed || (name ? strlen(t->name) != bytes || memcmp(t->name, name, bytes)
					 : t->number != number)))
		t = t->next;
	pthread_mutex_unlock(&tenants->lock);
	return t;
}

const struct soda_tenant *soda_tenant_named(struct soda_tenants *tenants, const char *name,
					    size_t bytes)
{
	return look_up(tenants, name, bytes, 0);
}

const struct soda_tenant *soda_tenant_numbered(struct soda_tenants *tenants, uint32_t number)
{
	return look_up(tenants, NULL, 0, number);
}

void soda_tenant_count(struct soda_tenant *tenant, bool write, uint32_t bytes)
{
	atomic_fetch_add_explicit(write ? &tenant->writes : &tenant->reads, 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(write ? &tenant->bytes_written : &tenant->bytes_read, bytes,
				  memory_order_relaxed);
}

/* Statistics */

static void walk_rates(struct soda_metrics *m, struct soda_tenant *t)
{
	uint64_t rate, requests;

	pthread_mutex_lock(&t->flow.lock);
	rate = t->flow.bytes_per_s;
	requests = t->flow.requests_per_s;
	pthread_mutex_unlock(&t->flow.lock);
	soda_metrics_say_size(m, "rate_bytes", "most that a tenant may move a second; 0: no limit",
			      rate);
	soda_metrics_say_level(m, "rate_requests",
			       "requests that it may make a second; 0: no limit", requests);
	soda_metrics_say_level(m, "weight", "its share beside other tenants",
			       atomic_load(&t->flow.weight));
}

static void walk_counters(struct soda_metrics *m, struct soda_tenant *t)
{
	static const struct soda_metric counters[] = {
		{ .key = "reads", .help = "READs served to a tenant", .kind = SODA_METRIC_COUNTER },
		{ .key = "writes",
		  .help = "WRITEs stored of a tenant",
		  .kind = SODA_METRIC_COUNTER },
		{ .key = "bytes_read",
		  .help = "data sent to a tenant",
		  .unit = SODA_UNIT_BYTES,
		  .kind = SODA_METRIC_COUNTER },
		{ .key = "bytes_written",
		  .help = "data received from a tenant",
		  .unit = SODA_UNIT_BYTES,
		  .kind = SODA_METRIC_COUNTER },
		{ .key = "delayed",
		  .help = "requests of a tenant that its rate has made wait",
		  .kind = SODA_METRIC_COUNTER },
		{ .key = "refused",
		  .help = "connections refused that named a tenant",
		  .kind = SODA_METRIC_COUNTER },
	};
	const _Atomic uint64_t *const values[] = { &t->reads,	     &t->writes,
						   &t->bytes_read,   &t->bytes_written,
						   &t->flow.delayed, &t->refused };

	for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		soda_metrics_number(m, &counters[i], atomic_load(values[i]));
}

/* The list only grows, at its end, and a record stays. */
void soda_tenants_walk(struct soda_tenants *tenants, const struct soda_tenant *of,
		       void (*own)(void *arg, struct soda_metrics *m, struct soda_tenant *tenant),
		       void *arg, struct soda_metrics *m)
{
	static const struct soda_metric_list listed = { "tenant_list", "tenant", TENANTS_SHOWN };
	struct soda_tenant *at;

	if (!tenants->path)
		return;
	soda_metrics_list(m, &listed);
	pthread_mutex_lock(&tenants->lock);
	at = tenants->list;
	pthread_mutex_unlock(&tenants->lock);
	while (at) {
		if (!of || at == of) {
			soda_metrics_item(m);
			soda_metrics_text(m, "id", at->name);
			soda_metrics_text(m, "role",
					  soda_tenant_removed(tenants, at)
						  ? "removed"
						  : soda_role_names[soda_tenant_role(tenants, at)]);
			own(arg, m, at);
			walk_rates(m, at);
			walk_counters(m, at);
			soda_metrics_item_end(m);
		}
		pthread_mutex_lock(&tenants->lock);
		at = at->next;
		pthread_mutex_unlock(&tenants->lock);
	}
	soda_metrics_list_end(m);
}
