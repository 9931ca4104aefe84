/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of the Arrow C data interface: a plan (arrow/plan.h), and its pieces handed over; and
 * structures of it, read out of a step.
 */
#include <errno.h>
#include <stdlib.h>

#include "movement/arrow/structs.h"
#include "movement/mover.h"

/* The plan of a program's table. Errors are remembered. */
static int make_plan(const struct ArrowSchema *schema, const struct ArrowArray *const *batches,
		     size_t n, const struct soda_move_arrow_options *how, uint64_t bytes,
		     bool measure, struct soda_arrow_plan *plan_p)
{
	const struct soda_arrow_target target = {
		.form = how ? how->form : SODA_MOVE_ARROW_STREAM,
		.align = how && how->align ? how->align : SODA_ARROW_ALIGN,
		.bytes = bytes,
		.measure = measure,
	};
	struct soda_arrow_why why = { "" };
	int ret;

	soda_move_begun();
	if (how && (how->reserved || how->flags & ~SODA_MOVE_ARROW_COPY))
		return soda_move_failed(-EINVAL,
					"struct soda_move_arrow_options: `reserved` is not 0, or"
					" `flags` has one that there is not");
	ret = soda_arrow_plan_make(schema, batches, n, &target, plan_p, &why);
	return ret < 0 ? soda_move_failed(ret, "%s", why.text) : 0;
}

static int hand_over(struct soda_move_buffer *b, const struct soda_move_arrow_options *how,
		     struct soda_arrow_plan *plan, struct soda_move_ticket **ticket_p)
{
	int ret;

	if (plan->bytes > b->bytes)
		return soda_move_failed(
			-EFBIG, "the table has %llu bytes, and a step of the buffer %llu",
			(unsigned long long)plan->bytes, (unsigned long long)b->bytes);
	if (how && how->flags & SODA_MOVE_ARROW_COPY && soda_arrow_plan_copy(plan) < 0)
		return soda_move_failed(-ENOMEM, "no memory for a copy of the table, %llu bytes",
					(unsigned long long)plan->bytes);
	ret = soda_mover_hand_over(b, plan->pieces, plan->pieces_n, plan->blocks, ticket_p);
	if (ret == 0)
		plan->blocks = NULL; /* the ticket's */
	return ret;
}

SODA_API int soda_move_arrow(struct soda_move_buffer *b, const struct ArrowSchema *schema,
			     const struct ArrowArray *const *batches, size_t n,
			     const struct soda_move_arrow_options *how,
			     struct soda_move_ticket **ticket_p)
{
	struct soda_arrow_plan plan;
	int saved = errno, ret = make_plan(schema, batches, n, how, b->bytes, false, &plan);

	if (ret == 0) {
		ret = hand_over(b, how, &plan, ticket_p);
		soda_arrow_plan_free(&plan);
	}
	errno = saved;
	return ret;
}

SODA_API int soda_move_arrow_bytes(const struct ArrowSchema *schema,
				   const struct ArrowArray *const *batches, size_t n,
				   const struct soda_move_arrow_options *how, uint64_t *bytes_p)
{
	struct soda_arrow_plan plan;
	int saved = errno, ret = make_plan(schema, batches, n, how, 0, true, &plan);

	if (ret == 0) {
		*bytes_p = plan.bytes;
		soda_arrow_plan_free(&plan);
	}
	errno = saved;
	return ret;
}

SODA_API int soda_move_arrow_schema(const struct soda_move_step *step, struct ArrowSchema *schema_p,
				    size_t *batches_p)
{
	struct soda_arrow_why why = { "" };
	int saved = errno, ret;

	soda_move_begun();
	ret = soda_arrow_structs_schema(step->data, step->bytes, schema_p, batches_p, &why);
	if (ret < 0)
		soda_move_failed(ret, "%s", why.text);
	errno = saved;
	return ret;
}

SODA_API int soda_move_arrow_batch(const struct soda_move_step *step, size_t i,
				   struct ArrowArray *batch_p)
{
	struct soda_arrow_why why = { "" };
	int saved = errno, ret;

	soda_move_begun();
	ret = soda_arrow_structs_array(step->data, step->bytes, i, batch_p, &why);
	if (ret < 0)
		soda_move_failed(ret, "%s", why.text);
	errno = saved;
	return ret;
}
