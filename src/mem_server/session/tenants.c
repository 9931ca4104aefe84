/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/session/tenants.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Directories of an entry, opened before anything changes. */
struct coming {
	struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX];
	unsigned n;
};

static void close_dirs(struct soda_tenant_dir *dirs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(dirs[i].fd);
}

static void discard(void *arg)
{
	struct coming *c = arg;

	close_dirs(c->dirs, c->n);
	free(c);
}

static int prepare(void *arg, const struct soda_tenant_entry *entry, void **coming_p,
		   struct soda_conf_error *err)
{
	struct coming *c = calloc(1, sizeof(*c));

	if (!c)
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < entry->exports_n; i++) {
		int fd = open(entry->exports[i].path, O_PATH | O_DIRECTORY | O_CLOEXEC), r = -errno;

		if (fd < 0) {
			discard(c);
			return soda_conf_fail(err, r, "tenant %s: export %.120s: %s", entry->name,
					      entry->exports[i].path, soda_strerror(r));
		}
		c->dirs[c->n++] =
			(struct soda_tenant_dir){ .fd = fd,
						  .writable = entry->exports[i].writable };
	}
	*coming_p = c;
	return 0;
}

static void apply(void *arg, struct soda_tenant *tenant, const struct soda_tenant_entry *entry,
		  void *coming)
{
	struct soda_server_tenant *t = soda_server_tenant(tenant);
	struct soda_store *store = arg;
	struct coming *c = coming;

	close_dirs(t->dirs, t->dirs_n);
	memcpy(t->dirs, c->dirs, sizeof(t->dirs));
	t->dirs_n = c->n;
	c->n = 0;
	pthread_mutex_lock(&store->lock);
	t->account.quota = entry->quota;
	pthread_mutex_unlock(&store->lock);
}

static void destroyed(struct soda_tenant *tenant)
{
	struct soda_server_tenant *t = soda_server_tenant(tenant);

	close_dirs(t->dirs, t->dirs_n);
}

const struct soda_tenants_ops soda_server_tenants_ops = {
	.record_bytes = sizeof(struct soda_server_tenant),
	.prepare = prepare,
	.apply = apply,
	.discard = discard,
	.destroyed = destroyed,
};

int soda_tenant_dirs(struct soda_tenants *tenants, struct soda_tenant *tenant,
		     struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX])
{
	struct soda_server_tenant *t = soda_server_tenant(tenant);
	unsigned n = 0;
	int r = 0;

	pthread_mutex_lock(&tenants->lock);
	for (; n < t->dirs_n && !r; n += !r) {
		dirs[n] = t->dirs[n];
		dirs[n].fd = fcntl(t->dirs[n].fd, F_DUPFD_CLOEXEC, 0);
		r = dirs[n].fd < 0 ? -ENOMEM : 0;
	}
	pthread_mutex_unlock(&tenants->lock);
	if (r)
		close_dirs(dirs, n);
	return r ? r : (int)n;
}
