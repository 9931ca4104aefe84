/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/owner.h"

#include <errno.h>
#include <stdlib.h>

int soda_owners_init(struct soda_owners *owners, uint32_t max)
{
	*owners = (struct soda_owners){ .max = max };
	owners->table = calloc(max, sizeof(*owners->table));
	owners->spare = calloc(max, sizeof(*owners->spare));
	if (owners->table && owners->spare)
		return 0;
	soda_owners_destroy(owners);
	return -ENOMEM;
}

void soda_owners_destroy(struct soda_owners *owners)
{
	for (uint32_t id = 0; id < owners->used; id++)
		if (owners->table[id])
			soda_owner_remove(owners, owners->table[id]);
	free(owners->table);
	free(owners->spare);
	*owners = (struct soda_owners){ 0 };
}

/* Once for each opening of a region: a walk over the table will do. */
struct soda_owner *soda_owner_find(const struct soda_owners *owners,
				   const struct soda_owner_name *name)
{
	for (uint32_t id = 0; id < owners->used; id++) {
		struct soda_owner *o = owners->table[id];

		if (o && o->s.name.file && o->s.name.id[0] == name->id[0] &&
		    o->s.name.id[1] == name->id[1] && o->s.name.server == name->server &&
		    o->s.name.bytes == name->bytes && o->s.name.view_chunk == name->view_chunk &&
		    o->s.name.view_user == name->view_user &&
		    o->s.name.view_tenant == name->view_tenant)
			return o;
	}
	return NULL;
}

struct soda_owner *soda_owner_lingering(const struct soda_owners *owners)
{
	struct soda_owner *first = NULL;

	for (uint32_t id = 0; id < owners->used; id++) {
		struct soda_owner *o = owners->table[id];

		if (o && !o->s.regions && (!first || o->closed < first->closed))
			first = o;
	}
	return first;
}

int soda_owner_add(struct soda_owners *owners, const struct soda_owner_name *name, uint64_t entries,
		   struct soda_owner **owner_p)
{
	struct soda_owner *o;

	if (!owners->spares && owners->used == owners->max)
		return -ENOSPC;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->s.name = *name;
	o->entries = entries;
	o->id = owners->spares ? owners->spare[--owners->spares] : owners->used++;
	o->serial = ++owners->serials;
	owners->table[o->id] = o;
	*owner_p = o;
	return 0;
}

void soda_owner_remove(struct soda_owners *owners, struct soda_owner *owner)
{
	owners->table[owner->id] = NULL;
	owners->spare[owners->spares++] = owner->id;
	soda_ghost_destroy(owner->ghost);
	free(owner);
}
