/* SPDX-License-Identifier: BSD-3-Clause */
/* What the statistics say of the caches. */
#include "dpu_agent/cache_stats.h"

#include "dpu_agent/agent.h"

static void put(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void put_hex(json_t *object, const char *key, uint64_t value)
{
	char text[20];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
	json_object_set_new(object, key, json_string(text));
}

static void put_counts(json_t *object, const struct soda_cache_counts *n)
{
	put(object, "cache_hits", n->hits);
	put(object, "cache_late_hits", n->late_hits);
	put(object, "cache_misses", n->misses);
	put(object, "cache_hit_bytes", n->bytes_hit);
	put(object, "cache_late_hit_bytes", n->bytes_late);
	put(object, "cache_miss_bytes", n->bytes_missed);
	put(object, "cache_bypassed", n->bypassed);
	put(object, "cache_fills", n->fills);
	put(object, "cache_fills_failed", n->fills_failed);
	put(object, "cache_filled_bytes", n->bytes_filled);
	put(object, "cache_evictions", n->evictions);
	put(object, "cache_useless", n->useless);
	put(object, "cache_useless_bytes", n->bytes_useless);
	put(object, "cache_writes", n->writes);
	put(object, "cache_entries", n->entries);
}

/* The switch with its inputs: see model.h. */
static void put_model(json_t *object, const struct soda_model *m)
{
	json_object_set_new(object, "on", json_boolean(m->on));
	json_object_set_new(object, "hit_rate", json_real(m->hit_rate));
	json_object_set_new(object, "waste", json_real(m->waste));
	json_object_set_new(object, "gain", json_real(m->gain));
	json_object_set_new(object, "threshold", json_real(m->ratio));
	put(object, "switched_on", m->switched_on);
	put(object, "switched_off", m->switched_off);
}

static void add_owner(void *list, const struct soda_owner_stats *o)
{
	static const char *const advice[] = { "adaptive", "cached", "uncached" };
	json_t *object = json_object();

	json_object_set_new(object, "kind", json_string(o->name.file ? "file" : "region"));
	put_hex(object, o->name.file ? "file_id" : "client_id", o->name.id[0]);
	put_hex(object, o->name.file ? "generation" : "region_id", o->name.id[1]);
	json_object_set_new(object, "advice", json_string(advice[o->advice]));
	put(object, "bytes", o->name.bytes);
	put(object, "regions", o->regions);
	put(object, "requests", o->requests);
	put(object, "hits", o->hits);
	put(object, "late_hits", o->late_hits);
	put(object, "asked_bytes", o->bytes_asked);
	put(object, "hit_bytes", o->bytes_hit);
	put(object, "prefetched_bytes", o->bytes_fetched);
	put(object, "ghosts", o->ghosts);
	put_model(object, &o->model);
	json_array_append_new(list, object);
}

static void put_dynamic(json_t *object, struct soda_prefetch *p, bool owners)
{
	struct soda_prefetch_stats s;
	json_t *list;

	soda_prefetch_stats(p, &s);
	json_object_set_new(object, "cache_policy", json_string(s.policy));
	json_object_set_new(object, "cache_policy_replaced", json_boolean(s.policy_replaced));
	put(object, "cache_policy_nonsense", s.nonsense);
	put_counts(object, &s.cache);
	put(object, "cache_recent_lost", s.recent_lost);
	put(object, "cache_prefetches", s.wanted);
	put(object, "cache_prefetches_dropped", s.unwanted);
	put(object, "cache_net_bytes_per_s", s.net_bytes_per_s);
	put(object, "cache_intra_bytes_per_s", s.intra_bytes_per_s);
	json_object_set_new(object, "cache_ratio", json_real(s.ratio));
	put(object, "cache_owners", s.owners);
	put(object, "cache_owners_on", s.owners_on);
	put(object, "cache_switched_on", s.switched_on);
	put(object, "cache_switched_off", s.switched_off);
	if (!owners)
		return;
	list = json_array();
	soda_prefetch_each(p, add_owner, list);
	json_object_set_new(object, "cache_owner_list", list);
}

static void put_static(json_t *object, struct soda_static *cache)
{
	struct soda_static_stats s;

	soda_static_stats(cache, &s);
	put(object, "static_capacity_bytes", s.capacity);
	put(object, "static_used_bytes", s.used);
	put(object, "static_ranges", s.ranges);
	put(object, "static_loaded_bytes", s.bytes_loaded);
	put(object, "static_loads_failed", s.loads_failed);
	put(object, "static_refused", s.refused);
	put(object, "static_shared", s.shared);
	put(object, "static_hits", s.hits);
	put(object, "static_hit_bytes", s.bytes_hit);
}

void soda_caches_describe(struct soda_dpu *dpu, json_t *object, bool owners)
{
	json_object_set_new(object, "dynamic", json_boolean(dpu->caches.dynamic));
	json_object_set_new(object, "static", json_boolean(dpu->caches.statics));
	if (dpu->caches.dynamic)
		put_dynamic(object, dpu->caches.dynamic, owners);
	if (dpu->caches.statics)
		put_static(object, dpu->caches.statics);
}
