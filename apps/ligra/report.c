/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/run.h"

#include <errno.h>
#include <jansson.h>
#include <omp.h>
#include <string.h>

static json_t *count(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *describe(const struct report *r)
{
	struct soda_stats stats = mem_stats(mem_is_fabric(r->arrays) ? r->arrays : r->g->mem);
	uint64_t objects = r->g->mem->bytes + r->arrays->peak;
	bool fam = mem_is_fabric(r->g->mem) || mem_is_fabric(r->arrays);
	json_t *o = json_object();

	json_object_set_new(o, "app", json_string(r->result->app->name));
	json_object_set_new(o, "memory", json_string(mem_kind_name(r->g->mem->kind)));
	json_object_set_new(o, "arrays", json_string(mem_kind_name(r->arrays->kind)));
	json_object_set_new(o, "vertices", count(r->g->vertices));
	json_object_set_new(o, "edges", count(r->g->edges));
	json_object_set_new(o, "symmetric", json_boolean(r->g->symmetric));
	json_object_set_new(o, "threads", json_integer(omp_get_max_threads()));
	json_object_set_new(o, "load_seconds", json_real(r->load_seconds));
	json_object_set_new(o, "seconds", json_real(r->measured.seconds));
	json_object_set_new(o, "cpu_seconds", json_real(r->measured.cpu_seconds));
	json_object_set_new(o, "verified", json_boolean(r->verified));
	json_object_set_new(o, "rounds", count(r->measured.rounds));
	json_object_set_new(o, "object_bytes", count(objects));
	json_object_set_new(o, "array_bytes", count(r->arrays->peak));
	json_object_set_new(o, "faults", count(r->measured.faults));
	json_object_set_new(o, "bytes_fetched", count(r->measured.bytes_fetched));
	json_object_set_new(o, "bytes_written_back", count(r->measured.bytes_written_back));
	json_object_set_new(o, "bytes_fetched_in_all", count(stats.bytes_fetched));
	json_object_set_new(o, "bytes_written_back_in_all", count(stats.bytes_written_back));
	json_object_set_new(o, "prefetched", count(r->measured.prefetched));
	json_object_set_new(o, "prefetch_useless", count(r->measured.prefetch_useless));
	json_object_set_new(o, "buffer_bytes", count(stats.buffer_bytes));
	json_object_set_new(o, "resident_peak_bytes",
			    count(fam ? stats.resident_peak_bytes : objects));
	json_object_set_new(o, "pss_bytes", count(r->measured.pss_bytes));
	json_object_set_new(o, "metadata_bytes", count(stats.metadata_bytes));
	json_object_set_new(o, "fault_max_ns", count(stats.fault_max_ns));
	json_object_set_new(o, "copies_expelled", count(stats.copies_expelled));
	json_object_set_new(o, "rebuilt_bytes", count(stats.rebuilt_bytes));
	return o;
}

int report_write(const char *path, const struct report *r, struct soda_graph_error *err)
{
	json_t *o = describe(r);
	int ret = 0;

	if (json_dump_file(o, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)))
		ret = soda_graph_fail(err, errno ? errno : EIO, "%s: cannot write: %s", path,
				      strerror(errno));
	json_decref(o);
	return ret;
}
