/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of the Arrow C data interface: a plan (arrow/plan.h), and its pieces handed over. */
#include <errno.h>
#include <stdlib.h>

#include "movement/mover.h"

/* The plan of a program's table. Errors are remembered. */
static int make_plan(const struct ArrowSchema *schema, const struct ArrowArray *const *batches,
		     size_t n, const struct soda_move_arrow *how, bool measure,
		     struct soda_arrow_plan *plan_p)
{
	unsigned align = how && how->align ? how->align : SODA_ARROW_ALIGN;
	struct soda_arrow_why why = { "" };
	int ret;

	soda_move_begun();
	if (how && how->reserved)
		return soda_move_failed(-EINVAL, "struct soda_move_arrow: `reserved` is not 0");
	ret = soda_arrow_plan_make(schema, batches, n, align, measure, plan_p, &why);
	return ret < 0 ? soda_move_failed(ret, "%s", why.text) : 0;
}

SODA_API int soda_move_arrow(struct soda_move_buffer *b, const struct ArrowSchema *schema,
			     const struct ArrowArray *const *batches, size_t n,
			     const struct soda_move_arrow *how, struct soda_move_ticket **ticket_p)
{
	struct soda_arrow_plan plan;
	int saved = errno, ret = make_plan(schema, batches, n, how, false, &plan);

	if (ret == 0 && plan.bytes > b->bytes) {
		ret = soda_move_failed(-EFBIG,
				       "the table's stream has %llu bytes, and a step of the buffer"
				       " %llu",
				       (unsigned long long)plan.bytes,
				       (unsigned long long)b->bytes);
		soda_arrow_plan_free(&plan);
	} else if (ret == 0) {
		ret = soda_mover_hand_over(b, plan.pieces, plan.pieces_n, plan.blocks, ticket_p);
		if (ret == 0)
			plan.blocks = NULL; /* the ticket's */
		soda_arrow_plan_free(&plan);
	}
	errno = saved;
	return ret;
}

SODA_API int soda_move_arrow_bytes(const struct ArrowSchema *schema,
				   const struct ArrowArray *const *batches, size_t n,
				   const struct soda_move_arrow *how, uint64_t *bytes_p)
{
	struct soda_arrow_plan plan;
	int saved = errno, ret = make_plan(schema, batches, n, how, true, &plan);

	if (ret == 0) {
		*bytes_p = plan.bytes;
		soda_arrow_plan_free(&plan);
	}
	errno = saved;
	return ret;
}
