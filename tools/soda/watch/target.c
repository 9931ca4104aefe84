/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/target.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

/* Make room for one more of each row's history. */
static void shift(struct soda_top_target *t)
{
	if (t->history_n < SODA_TOP_HISTORY) {
		t->history_n++;
		return;
	}
	for (int row = 0; row < SODA_TOP_ROWS_MAX; row++)
		memmove(t->history[row], t->history[row] + 1,
			(SODA_TOP_HISTORY - 1) * sizeof(t->history[row][0]));
}

static void evaluate(struct soda_top_target *t)
{
	shift(t);
	for (int row = 0; row < SODA_TOP_ROWS_MAX; row++) {
		bool known = t->state == SODA_TOP_HERE && row < (int)t->view->rows_n;

		t->values[row] =
			known ? soda_top_row_value(&t->view->rows[row], &t->pair) : (double)NAN;
		t->history[row][t->history_n - 1] = (float)t->values[row];
	}
	for (int i = 0; i < SODA_TOP_COLUMNS; i++)
		t->columns[i] = t->state == SODA_TOP_HERE
					? soda_top_row_value(&t->view->columns[i], &t->pair)
					: (double)NAN;
}

static void forget_before(struct soda_top_target *t)
{
	json_decref(t->pair.before.counters);
	t->pair.before = (struct soda_top_sample){ .counters = NULL };
}

/* Take an answer (a program's has its counters in a member), and its reference. */
static void take_locked(struct soda_top_target *t, json_t *answer)
{
	json_t *inner = json_object_get(answer, "soda_stats");

	if (inner) {
		json_incref(inner);
		json_decref(answer);
		answer = inner;
	}
	if (t->state != SODA_TOP_HERE) { /* it may be another instance than before */
		forget_before(t);
		json_decref(t->pair.now.counters);
	} else {
		forget_before(t);
		t->pair.before = t->pair.now;
	}
	t->pair.now = (struct soda_top_sample){ .counters = answer, .at_ns = soda_now_ns() };
	t->state = SODA_TOP_HERE;
	if (t->view != soda_top_view_of(answer))
		t->history_n = 0; /* it has another kind's values */
	t->view = soda_top_view_of(answer);
	evaluate(t);
}

static void miss_locked(struct soda_top_target *t, const struct soda_why *why)
{
	t->state = SODA_TOP_GONE;
	t->why = *why;
	evaluate(t);
}

/* Sleep until then, or until the thread is to end. */
static void sleep_locked(struct soda_top_target *t, uint64_t until_ns)
{
	const struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000u),
					.tv_nsec = (long)(until_ns % 1000000000u) };

	while (!t->stop && soda_now_ns() < until_ns)
		pthread_cond_timedwait(&t->wake, &t->lock, &until);
}

static void *ask(void *arg)
{
	struct soda_top_target *t = arg;
	struct soda_why why = { "" };

	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		uint64_t next = soda_now_ns() + t->timing.interval_ms * 1000000ull;

		pthread_mutex_unlock(&t->lock);
		json_t *answer = soda_stat_read(&t->source, (int)t->timing.timeout_ms, &why);
		pthread_mutex_lock(&t->lock);
		if (t->paused)
			json_decref(answer);
		else if (answer)
			take_locked(t, answer);
		else
			miss_locked(t, &why);
		t->answers++;
		sleep_locked(t, next);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* Set the label: "1234 ligra" for a process whose name can be read, else the target's name. */
static void describe(struct soda_top_target *t)
{
	char path[64], program[256];
	ssize_t n = -1;

	if (strspn(t->name, "0123456789") == strlen(t->name)) {
		snprintf(path, sizeof(path), "/proc/%.20s/exe", t->name);
		n = readlink(path, program, sizeof(program) - 1);
	}
	program[n > 0 ? n : 0] = 0;
	snprintf(t->label, sizeof(t->label), "%.60s%s%.32s", t->name, n > 0 ? " " : "",
		 basename(program));
}

int soda_top_target_start(struct soda_top_target *t, const char *name,
			  const struct soda_top_timing *timing, struct soda_why *why)
{
	pthread_condattr_t attr;
	int r;

	*t = (struct soda_top_target){ .name = name, .timing = *timing };
	r = soda_stat_open(&t->source, name, why);
	if (r)
		return r;
	describe(t);
	for (int i = 0; i < SODA_TOP_COLUMNS; i++)
		t->columns[i] = (double)NAN;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
	return -pthread_create(&t->thread, NULL, ask, t);
}

void soda_top_target_pause(struct soda_top_target *t, bool paused)
{
	pthread_mutex_lock(&t->lock);
	t->paused = paused;
	pthread_mutex_unlock(&t->lock);
}

void soda_top_target_stop(struct soda_top_target *t)
{
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	soda_stat_close(&t->source, (int)t->timing.timeout_ms);
	json_decref(t->pair.before.counters);
	json_decref(t->pair.now.counters);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
}

static bool is_known(char *const *names, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

static int add(char **names, int n, int max, const char *name)
{
	if (n < max && name && *name && !is_known(names, n, name) && (names[n] = strdup(name)))
		n++;
	return n;
}

/* Each program that uses SODA listens on the abstract socket soda/stat/PID. */
static int add_programs(char **names, int n, int max)
{
	static const char mark[] = "@soda/stat/";
	FILE *sockets = fopen("/proc/net/unix", "re");
	char line[512];

	while (sockets && fgets(line, sizeof(line), sockets)) {
		char *at = strstr(line, mark);

		if (!at)
			continue;
		at += strlen(mark);
		at[strspn(at, "0123456789")] = 0;
		n = add(names, n, max, at);
	}
	if (sockets)
		fclose(sockets);
	return n;
}

/* Each server of a pool's list. */
static int add_list(char **names, int n, int max, const char *list)
{
	bool registry = list && !strncmp(list, "etcd://", 7); /* its commas are its own */
	char *copy = list && !registry ? strdup(list) : NULL, *rest = copy, *name;

	if (registry)
		return add(names, n, max, list);
	while (rest && (name = strsep(&rest, ",")))
		n = add(names, n, max, name);
	free(copy);
	return n;
}

int soda_top_find(char **names, int max)
{
	int n = add_list(names, 0, max, getenv("SODA_SERVER"));

	n = add_list(names, n, max, getenv("SODA_DPU"));
	return add_programs(names, n, max);
}
