/* SPDX-License-Identifier: BSD-3-Clause */
/* What the statistics say of the caches. */
#include "dpu_agent/paging/caches_stats.h"

#include <stdio.h>

#include "dpu_agent/life/agent.h"

enum { OWNERS_SHOWN = 64 };

static void count(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, key, help, value);
}

static void bytes(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, key, help, value);
}

static void level(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_NONE, key, help, value);
}

static void walk_counts(struct soda_metrics *m, const struct soda_cache_counts *n)
{
	count(m, "cache_hits", "requests that the dynamic cache had", n->hits);
	count(m, "cache_late_hits", "requests that waited for a fetch under way", n->late_hits);
	count(m, "cache_misses", "requests that it did not have", n->misses);
	bytes(m, "cache_hit_bytes", "data of hits", n->bytes_hit);
	bytes(m, "cache_late_hit_bytes", "data of late hits", n->bytes_late);
	bytes(m, "cache_miss_bytes", "data of misses", n->bytes_missed);
	count(m, "cache_bypassed", "requests that span entries, which are never cached",
	      n->bypassed);
	count(m, "cache_fills", "fetches for the dynamic cache that ended", n->fills);
	count(m, "cache_fills_failed", "of them, failed ones", n->fills_failed);
	bytes(m, "cache_filled_bytes", "data fetched for the dynamic cache", n->bytes_filled);
	count(m, "cache_evictions", "entries that made room for others", n->evictions);
	count(m, "cache_useless", "entries that went without having met a request", n->useless);
	bytes(m, "cache_useless_bytes", "data that was fetched and never asked for",
	      n->bytes_useless);
	count(m, "cache_writes", "writes that met an entry", n->writes);
	level(m, "cache_entries", "entries now", n->entries);
}

/* The switch with its inputs: see model.h. */
static void walk_model(struct soda_metrics *m, const struct soda_model *model)
{
	soda_metrics_say_flag(m, "on", "whether the dynamic cache is on for this owner", model->on);
	soda_metrics_say_real(m, "hit_rate", "mean share of hits, of ghosts while off",
			      model->hit_rate);
	soda_metrics_say_real(m, "waste", "mean share that was fetched and not asked for",
			      model->waste);
	soda_metrics_say_real(m, "gain", "what is compared with the threshold", model->gain);
	soda_metrics_say_real(m, "threshold", "bandwidth of the network in that of the node",
			      model->ratio);
	count(m, "switched_on", "times the model switched the cache on", model->switched_on);
	count(m, "switched_off", "times the model switched the cache off", model->switched_off);
}

static void put_hex(struct soda_metrics *m, const char *key, uint64_t value)
{
	char text[20];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
	soda_metrics_text(m, key, text);
}

static void walk_owner(void *arg, const struct soda_owner_stats *o)
{
	static const char *const advice[] = { "adaptive", "cached", "uncached" };
	struct soda_metrics *m = arg;
	char id[48]; /* parts of different length are different owners */

	snprintf(id, sizeof(id), "%llx.%llx.%llx", (unsigned long long)o->name.id[0],
		 (unsigned long long)o->name.id[1], (unsigned long long)o->name.bytes >> 12);
	soda_metrics_item(m);
	soda_metrics_text(m, "id", id);
	soda_metrics_text(m, "kind", o->name.file ? "file" : "region");
	put_hex(m, o->name.file ? "file_id" : "client_id", o->name.id[0]);
	put_hex(m, o->name.file ? "generation" : "region_id", o->name.id[1]);
	soda_metrics_text(m, "advice", advice[o->advice]);
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_BYTES, "bytes", "size of what is cached",
			 o->name.bytes);
	level(m, "regions", "regions open", o->regions);
	count(m, "requests", "requests since it was opened", o->requests);
	count(m, "hits", "of them, hits", o->hits);
	count(m, "late_hits", "of them, hits that waited", o->late_hits);
	bytes(m, "asked_bytes", "data asked for", o->bytes_asked);
	bytes(m, "hit_bytes", "of it, data of hits", o->bytes_hit);
	bytes(m, "prefetched_bytes", "data fetched ahead", o->bytes_fetched);
	level(m, "ghosts", "entries that are remembered and not held", o->ghosts);
	walk_model(m, &o->model);
	soda_metrics_item_end(m);
}

static void walk_dynamic(struct soda_metrics *m, struct soda_prefetch *p)
{
	static const struct soda_metric_list owners = { "cache_owner_list", "owner", OWNERS_SHOWN };
	struct soda_prefetch_stats s;

	soda_prefetch_stats(p, &s);
	soda_metrics_text(m, "cache_policy", s.policy);
	soda_metrics_say_flag(m, "cache_policy_replaced",
			      "whether a policy that misbehaved was replaced", s.policy_replaced);
	count(m, "cache_policy_nonsense", "answers of the policy that were refused", s.nonsense);
	walk_counts(m, &s.cache);
	count(m, "cache_recent_lost", "requests that no policy saw", s.recent_lost);
	count(m, "cache_prefetches", "fetches begun", s.wanted);
	count(m, "cache_prefetches_dropped", "fetches not begun: too many, or no room", s.unwanted);
	level(m, "cache_net_bytes_per_s", "bandwidth to the server as measured", s.net_bytes_per_s);
	level(m, "cache_intra_bytes_per_s", "bandwidth to programs as measured",
	      s.intra_bytes_per_s);
	soda_metrics_say_real(m, "cache_ratio", "the first in the second; negative: not known yet",
			      s.ratio);
	level(m, "cache_owners", "files and regions that could be cached", s.owners);
	level(m, "cache_owners_on", "of them, those that are", s.owners_on);
	count(m, "cache_switched_on", "times the model switched one on", s.switched_on);
	count(m, "cache_switched_off", "times the model switched one off", s.switched_off);
	soda_metrics_list(m, &owners);
	soda_prefetch_each(p, walk_owner, m);
	soda_metrics_list_end(m);
}

static void walk_static(struct soda_metrics *m, struct soda_static *cache)
{
	struct soda_static_stats s;

	soda_static_stats(cache, &s);
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_BYTES, "static_capacity_bytes",
			 "size of the static cache", s.capacity);
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_BYTES, "static_used_bytes",
			 "of it, in use", s.used);
	level(m, "static_ranges", "ranges in the static cache", s.ranges);
	bytes(m, "static_loaded_bytes", "data loaded into the static cache", s.bytes_loaded);
	count(m, "static_loads_failed", "loads that failed", s.loads_failed);
	count(m, "static_refused", "ranges refused, for want of room", s.refused);
	count(m, "static_shared", "ranges that were there already", s.shared);
	count(m, "static_hits", "requests answered from the static cache by the agent", s.hits);
	bytes(m, "static_hit_bytes", "data of them", s.bytes_hit);
}

void soda_caches_walk(struct soda_dpu *dpu, struct soda_metrics *m)
{
	soda_metrics_say_flag(m, "dynamic", "whether there is a dynamic cache",
			      dpu->caches.dynamic);
	soda_metrics_say_flag(m, "static", "whether there is a static cache", dpu->caches.statics);
	if (dpu->caches.dynamic)
		walk_dynamic(m, dpu->caches.dynamic);
	if (dpu->caches.statics)
		walk_static(m, dpu->caches.statics);
}
