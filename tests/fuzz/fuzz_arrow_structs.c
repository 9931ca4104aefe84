/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps with structures of Arrow's C data interface (movement/arrow/structs.h), as a consumer reads
 * what anybody may have written: the input is the step.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "movement/arrow/structs.h"

/* All that an array names lies in the step. */
static void check_array(const struct ArrowArray *a, const uint8_t *step, size_t bytes)
{
	MUST(a->release && a->length >= 0 && a->null_count <= a->length);
	for (int64_t i = 0; i < a->n_buffers; i++) {
		const uint8_t *at = a->buffers[i];

		MUST(!at || (at >= step && at <= step + bytes));
	}
	for (int64_t i = 0; i < a->n_children; i++)
		check_array(a->children[i], step, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct soda_arrow_why why = { "" };
	struct ArrowSchema schema;
	struct ArrowArray array;
	uint32_t fields;
	size_t n = 0;

	if (soda_arrow_structs_schema(data, bytes, &schema, &n, &why) < 0) {
		MUST(why.text[0]);
		return 0;
	}
	MUST(soda_arrow_schema_check(&schema, &fields, &why) == 0);
	schema.release(&schema);
	for (size_t i = 0; i < n && i < 8; i++) {
		if (soda_arrow_structs_array(data, bytes, i, &array, &why) < 0) {
			MUST(why.text[0]);
			continue;
		}
		check_array(&array, data, bytes);
		array.release(&array);
	}
	return 0;
}
