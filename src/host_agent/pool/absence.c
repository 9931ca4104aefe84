/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pool/absence.h"

#include <errno.h>

#include "base/limits.h"

void soda_absence_begin(struct soda_absence *a, uint64_t now_ns, uint64_t heard_ns)
{
	*a = (struct soda_absence){ .since_ns = now_ns,
				    .heard_ns = heard_ns,
				    .most_ms = SODA_COPIES_AWAY_MS };
}

/* From then on an attempt without an answer counts. */
static uint64_t silent_from(const struct soda_absence *a)
{
	return a->heard_ns + SODA_SILENT_MS * SODA_MS_NS;
}

bool soda_absence_was_silent(const struct soda_absence *a)
{
	return a->since_ns >= silent_from(a);
}

uint64_t soda_absence_others_since(const struct soda_absence *a)
{
	/* while it was silent others have answered */
	return soda_absence_was_silent(a) ? a->heard_ns : a->since_ns;
}

bool soda_absence_look(struct soda_absence *a, bool all_are_away, uint64_t now_ns)
{
	bool before = a->of_all;

	a->of_all = all_are_away;
	if (!before && !all_are_away)
		return false;
	a->since_ns = now_ns;
	a->counts = false;
	if (all_are_away)
		return false;
	a->most_ms = SODA_COPIES_RETURN_MS;
	return true;
}

static uint64_t deadline(const struct soda_absence *a)
{
	uint64_t at = a->since_ns + a->most_ms * SODA_MS_NS;

	return a->late && silent_from(a) > at ? silent_from(a) : at;
}

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

int soda_absence_attempted(struct soda_absence *a, int err, bool others, uint64_t now_ns,
			   int connect_ms, int soon_ms, int most_ms)
{
	uint64_t left_ms;
	int most;

	a->late = err == -ETIMEDOUT;
	a->counts = others;
	if (a->of_all) /* nobody waits for an attempt: a slow one may succeed */
		return lesser(2 * connect_ms, most_ms);
	if (!a->late)
		return connect_ms;
	left_ms = deadline(a) > now_ns ? (deadline(a) - now_ns) / SODA_MS_NS : 0;
	most = left_ms > (uint64_t)soon_ms ? (int)left_ms : soon_ms;
	return lesser(lesser(2 * connect_ms, most), most_ms);
}

bool soda_absence_is_over(const struct soda_absence *a, uint64_t now_ns)
{
	return !a->of_all && a->counts && now_ns >= deadline(a);
}
