/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench messages`: results for programs and for people. */
#include <math.h>
#include <stdio.h>

#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/messages/messages.h"

json_t *soda_bench_msg_report_new(const struct soda_bench_msg_plan *plan)
{
	json_t *out = json_object(), *mpis = json_array();

	soda_json_set_text(out, "format", "soda-bench-messages");
	soda_json_set_count(out, "version", 1);
	soda_json_set_count(out, "rounds", plan->rounds);
	json_object_set_new(out, "machine", soda_machine_describe());
	for (int i = 0; i < SODA_BENCH_MSG_MPIS; i++)
		if (plan->mpi[i][0])
			json_array_append_new(mpis, json_string(soda_bench_msg_mpis[i]));
	json_object_set_new(out, "mpis", mpis);
	json_object_set_new(out, "rates", json_array());
	json_object_set_new(out, "slow", json_array());
	json_object_set_new(out, "apps", json_array());
	json_object_set_new(out, "sweeps", json_array());
	return out;
}

static void print_mpi(double rate, int which, double ratio)
{
	if (which < 0)
		printf(" %10s %-8s %7s", "-", "", "-");
	else
		printf(" %10.3f %-8s %7.2f", rate / 1e6, soda_bench_msg_mpis[which], ratio);
}

static void print_rate(const struct soda_bench_msg_rate *r, bool first)
{
	if (first) {
		puts("millions of messages a second; ratios are SODA's by that of the better MPI");
		printf("%-9s %5s %6s %8s %10s %9s %10s %7s %10s %-8s %7s %10s %-8s %7s %10s %-8s "
		       "%7s\n",
		       "transport", "ranks", "agents", "bytes", "SODA", "agent ns", "many", "ratio",
		       "Isend", "", "ratio", "gathered", "", "ratio", "Alltoallv", "", "ratio");
	}
	printf("%-9s %5u %6u %8u %10.3f", soda_bench_msg_transports[r->transport], r->ranks,
	       r->agents, r->bytes, r->soda / 1e6);
	if (isnan(r->agent_ns))
		printf(" %9s", "-");
	else
		printf(" %9.0f", r->agent_ns);
	printf(" %10.3f", r->many / 1e6);
	if (isnan(r->many_ratio))
		printf(" %7s", "-");
	else
		printf(" %7.2f", r->many_ratio);
	for (int way = 0; way < SODA_BENCH_MSG_WAYS; way++)
		print_mpi(r->mpi[way], r->which[way], r->ratio[way]);
	putchar('\n');
	fflush(stdout);
}

static void set_way(json_t *row, const struct soda_bench_msg_rate *r, int way)
{
	static const char *const keys[][3] = {
		[SODA_BENCH_MSG_ISEND] = { "mpi_messages_per_s", "mpi", "ratio" },
		[SODA_BENCH_MSG_GATHER] = { "gathered_messages_per_s", "gathered_mpi",
					    "gathered_ratio" },
		[SODA_BENCH_MSG_ALLTOALLV] = { "alltoallv_messages_per_s", "alltoallv_mpi",
					       "alltoallv_ratio" },
	};
	int which = r->which[way];

	soda_json_set_real(row, keys[way][0], r->mpi[way]);
	soda_json_set_text(row, keys[way][1], which < 0 ? NULL : soda_bench_msg_mpis[which]);
	soda_json_set_real(row, keys[way][2], r->ratio[way]);
}

void soda_bench_msg_report_rate(const struct soda_bench_msg_rate *r, bool first, json_t *out)
{
	json_t *row;

	if (!out) {
		print_rate(r, first);
		return;
	}
	row = json_object();
	soda_json_set_text(row, "transport", soda_bench_msg_transports[r->transport]);
	soda_json_set_count(row, "bytes", r->bytes);
	soda_json_set_count(row, "ranks", r->ranks);
	soda_json_set_count(row, "agents", r->agents);
	soda_json_set_real(row, "messages_per_s", r->soda);
	soda_json_set_real(row, "agent_ns", r->agent_ns);
	soda_json_set_real(row, "many_messages_per_s", r->many);
	soda_json_set_real(row, "many_ratio", r->many_ratio);
	for (int way = 0; way < SODA_BENCH_MSG_WAYS; way++)
		set_way(row, r, way);
	json_array_append_new(json_object_get(out, "rates"), row);
}

void soda_bench_msg_report_slow(const struct soda_bench_msg_job *job,
				const struct soda_bench_msg_slow *slow, bool first, json_t *out)
{
	json_t *row;

	if (!out) {
		if (first)
			printf("\n%-12s %6s %9s %9s %9s %9s us, of a slow sender\n", "transport",
			       "agents", "waits", "p50", "p99", "longest");
		printf("%-12s %6u %9u %9.0f %9.0f %9.0f\n",
		       soda_bench_msg_transports[job->transport], job->agents, job->flush_us,
		       slow->p50, slow->p99, slow->most);
		fflush(stdout);
		return;
	}
	row = json_object();
	soda_json_set_text(row, "transport", soda_bench_msg_transports[job->transport]);
	soda_json_set_count(row, "agents", job->agents);
	soda_json_set_count(row, "messages", job->messages);
	soda_json_set_count(row, "flush_us", job->flush_us);
	soda_json_set_real(row, "p50_us", slow->p50);
	soda_json_set_real(row, "p99_us", slow->p99);
	soda_json_set_real(row, "max_us", slow->most);
	json_array_append_new(json_object_get(out, "slow"), row);
}

void soda_bench_msg_report_app(const struct soda_bench_msg_app *app, bool first, json_t *out)
{
	const struct soda_bench_msg_result *r = &app->result;
	json_t *row;

	if (!out) {
		if (first)
			printf("\n%-12s %-7s %5s %9s %12s %14s %9s %8s\n", "application", "agent",
			       "ranks", "seconds", "messages", "bytes", "m/c ratio", "verified");
		printf("%-12s %-7s %5u %9.3f %12llu %14llu %9.2f %8s\n", app->name,
		       soda_bench_msg_modes[app->mode], app->ranks, r->seconds,
		       (unsigned long long)r->messages, (unsigned long long)r->bytes, app->mc_ratio,
		       r->verified ? "yes" : "NO");
		fflush(stdout);
		return;
	}
	row = json_object();
	soda_json_set_text(row, "app", app->name);
	soda_json_set_text(row, "mode", soda_bench_msg_modes[app->mode]);
	soda_json_set_count(row, "ranks", app->ranks);
	soda_json_set_real(row, "seconds", r->seconds);
	soda_json_set_count(row, "messages", r->messages);
	soda_json_set_count(row, "bytes", r->bytes);
	soda_json_set_real(row, "mc_ratio", app->mc_ratio);
	json_object_set_new(row, "verified", json_boolean(r->verified));
	json_array_append_new(json_object_get(out, "apps"), row);
}

void soda_bench_msg_report_point(const struct soda_bench_msg_point *p, bool first, json_t *out)
{
	json_t *row;

	if (!out) {
		if (first)
			printf("\n%-14s %10s %12s %8s\n", "sweep", "value", "million/s", "cpu ns");
		printf("%-14s %10llu %12.3f %8.1f\n", p->what, (unsigned long long)p->value,
		       p->rate / 1e6, p->cpu_ns);
		fflush(stdout);
		return;
	}
	row = json_object();
	soda_json_set_text(row, "sweep", p->what);
	soda_json_set_count(row, "value", p->value);
	soda_json_set_real(row, "messages_per_s", p->rate);
	soda_json_set_real(row, "cpu_ns", p->cpu_ns);
	json_array_append_new(json_object_get(out, "sweeps"), row);
}
