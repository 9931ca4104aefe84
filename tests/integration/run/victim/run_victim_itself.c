/* SPDX-License-Identifier: BSD-3-Clause */
/* Things that a process does to itself while it has fabric memory. */
#include "run_victim.h"

#include <stdlib.h>

#include "lib/itself.h"

/* Its memory is what it was, and can be stored to. */
static void does(bool (*step)(void))
{
	unsigned char *p = malloc(BIG);

	CHECK(p);
	fill(p, BIG, 1);
	CHECK(in_fam(p));
	CHECK(step());
	for (unsigned lap = 1; lap < 4; lap++) {
		verify(p, BIG, lap);
		fill(p, BIG, lap + 1);
	}
	verify(p, BIG, 4);
}

void case_limits(void)
{
	does(lower_limits);
}

void case_identity(void)
{
	does(change_identity);
}

void case_filter(void)
{
	does(forbid_calls);
}
