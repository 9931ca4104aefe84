/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads what `heat` hands over, from the agent's memory, until it ends: a line for each step, and
 * of the last one a picture.
 *
 *   frames --agent ADDRESS [--name NAME] [--image FILE.ppm] [--save FILE]
 *
 * Steps that are structures of Arrow's C data interface (heat --as structs) are drawn, in the
 * terminal and as a PPM file: the columns are read where they lie.  Others are Arrow IPC, which a
 * program reads by the Arrow library of its language; --save writes the last step for it.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <soda_move.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 60000, COLUMNS = 64, ROWS = 20 };

/* A table's value of a key of its metadata, a whole number; -1: it has none. */
static long metadata_number(const char *metadata, const char *key)
{
	int32_t pairs = 0, bytes;

	if (metadata)
		memcpy(&pairs, metadata, sizeof(pairs));
	for (int32_t i = 0; i < pairs; i++) {
		const char *text[2];
		int32_t lengths[2];

		metadata += i ? 0 : sizeof(pairs);
		for (int k = 0; k < 2; k++) {
			memcpy(&bytes, metadata, sizeof(bytes));
			text[k] = metadata + sizeof(bytes);
			lengths[k] = bytes;
			metadata += sizeof(bytes) + (size_t)bytes;
		}
		if ((size_t)lengths[0] == strlen(key) && !memcmp(text[0], key, strlen(key))) {
			char number[24] = "";

			memcpy(number, text[1], (size_t)(lengths[1] < 23 ? lengths[1] : 23));
			return strtol(number, NULL, 10);
		}
	}
	return -1;
}

/* 0 to 1, from black over red and yellow to white. */
static void colour(double value, unsigned char rgb[3])
{
	for (int i = 0; i < 3; i++) {
		double part = 3 * value - i;

		rgb[i] = (unsigned char)(255 * (part < 0 ? 0 : part > 1 ? 1 : part));
	}
}

static void write_image(const char *path, const double *t, long width, long height)
{
	FILE *out = fopen(path, "w");

	if (!out)
		err(1, "%s", path);
	fprintf(out, "P6\n%ld %ld\n255\n", width, height);
	for (long i = 0; i < width * height; i++) {
		unsigned char rgb[3];

		colour(sqrt(t[i] / 100), rgb); /* the square root shows more of what is cold */
		fwrite(rgb, sizeof(rgb), 1, out);
	}
	if (fclose(out))
		err(1, "%s", path);
}

static void draw(const double *t, long width, long height)
{
	static const char shades[] = " .:-=+*#%@";

	for (long y = 0; y < ROWS; y++) {
		for (long x = 0; x < COLUMNS; x++) {
			double value =
				sqrt(t[y * height / ROWS * width + x * width / COLUMNS] / 100);

			putchar(shades[(int)(value * 9.99)]);
		}
		putchar('\n');
	}
}

/* The plate's temperature, if the table is one of heat's; where it lies in the step. */
static const double *temperature(const struct ArrowSchema *schema, const struct ArrowArray *batch,
				 long *width_p)
{
	long width = metadata_number(schema->metadata, "width");

	if (schema->n_children < 1 || strcmp(schema->children[0]->format, "g") || width < 1 ||
	    batch->children[0]->length < width || batch->children[0]->length % width)
		return NULL;
	*width_p = width;
	return batch->children[0]->buffers[1];
}

/* Values of a step are a stranger's: what is out of range is no picture. */
static int is_plate(const double *t, int64_t n, double *mean_p)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++) {
		if (!(t[i] >= 0 && t[i] <= 100))
			return 0;
		sum += t[i];
	}
	*mean_p = sum / (double)n;
	return 1;
}

static void show(const struct soda_move_step *step, const char *image, int last)
{
	struct ArrowSchema schema;
	struct ArrowArray batch;
	const double *t;
	size_t batches;
	double mean;
	long width;

	if (soda_move_arrow_schema(step, &schema, &batches) ||
	    soda_move_arrow_batch(step, 0, &batch))
		errx(1, "step %llu: %s", (unsigned long long)step->number, soda_move_last_error());
	t = temperature(&schema, &batch, &width);
	if (!t || !is_plate(t, batch.length, &mean))
		errx(1, "step %llu is no table of heat's", (unsigned long long)step->number);
	if (!last) {
		printf("step %llu: iteration %ld, %ld x %ld, %.4f degrees on average\n",
		       (unsigned long long)step->number,
		       metadata_number(schema.metadata, "iteration"), width,
		       (long)batch.length / width, mean);
	} else {
		draw(t, width, (long)batch.length / width);
		if (image)
			write_image(image, t, width, (long)batch.length / width);
	}
	batch.release(&batch);
	schema.release(&schema);
}

static void save(const char *path, const struct soda_move_step *step)
{
	FILE *out = fopen(path, "w");

	if (!out || fwrite(step->data, step->bytes, 1, out) != 1 || fclose(out))
		err(1, "%s", path);
}

/* IPC streams begin with a message, files with their magic. */
static const char *ipc_of(const struct soda_move_step *step)
{
	if (step->bytes > 8 && !memcmp(step->data, "\xff\xff\xff\xff", 4))
		return "an Arrow IPC stream";
	return step->bytes > 8 && !memcmp(step->data, "ARROW1", 6) ? "an Arrow IPC file" : NULL;
}

static void take(const struct soda_move_step *step, const char *image, int last)
{
	const char *ipc = ipc_of(step);

	if (!ipc)
		show(step, image, last);
	else if (!last)
		printf("step %llu: %s of %llu bytes\n", (unsigned long long)step->number, ipc,
		       (unsigned long long)step->bytes);
}

/* The last step is held until the end, when it is drawn. */
static void read_all(struct soda_move_reader *reader, const char *image, const char *path)
{
	struct soda_move_step step, last = { 0 };
	int ret;

	while ((ret = soda_move_next(reader, last.number, WAIT_MS, &step)) == 0) {
		if (last.number && soda_move_release(reader, &last))
			errx(1, "%s", soda_move_last_error());
		take(&step, image, 0);
		last = step;
	}
	if (ret != -EPIPE || !last.number)
		errx(1, "%s", soda_move_last_error());
	take(&last, image, 1);
	if (path)
		save(path, &last);
}

int main(int argc, char **argv)
{
	static const struct option flags[] = {
		{ "agent", 1, NULL, 'a' }, { "name", 1, NULL, 'm' }, { "image", 1, NULL, 'i' },
		{ "save", 1, NULL, 's' },  { NULL, 0, NULL, 0 },
	};
	const char *agent = NULL, *name = "heat", *image = NULL, *path = NULL;
	struct soda_move_reader *reader;
	int flag;

	while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
		switch (flag) {
		case 'a':
			agent = optarg;
			break;
		case 'm':
			name = optarg;
			break;
		case 'i':
			image = optarg;
			break;
		case 's':
			path = optarg;
			break;
		default:
			return 2;
		}
	}
	if (optind < argc)
		errx(2, "%s: unexpected", argv[optind]);
	if (soda_move_open(agent, name, WAIT_MS, &reader))
		errx(1, "%s", soda_move_last_error());
	read_all(reader, image, path);
	soda_move_close(reader);
	return 0;
}
