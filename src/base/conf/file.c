/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The INI file, by libinih: keys without a section or in [program].  Nothing is
 * applied after the first error, which names its line.
 */
#include "base/conf/conf.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct ini_reader {
	const struct soda_conf *conf;
	void *values;
	struct soda_conf_error *err;
	FILE *file;
	const char *path;
	bool *seen; /* for each option: this file has set it */
	unsigned line;
	int status; /* the first error; nothing is applied after it */
};

/*
 * Reads a line for libinih, and counts it, as libinih tells its handler no line number.  Skips
 * leading blanks, which libinih would take for a continued line.
 */
static char *read_ini_line(char *text, int bytes, void *stream)
{
	struct ini_reader *reader = stream;
	size_t blanks;

	if (reader->status || !fgets(text, bytes, reader->file))
		return NULL;
	reader->line++;
	if (!strchr(text, '\n') && !feof(reader->file)) {
		reader->status =
			soda_conf_fail(reader->err, -EINVAL, "%s:%u: line is longer than %d bytes",
				       reader->path, reader->line, bytes - 2);
		return NULL;
	}
	blanks = strspn(text, " \t\v\f\r");
	memmove(text, text + blanks, strlen(text + blanks) + 1);
	return text;
}

static size_t find(const struct soda_conf *conf, const char *name)
{
	size_t i = 0;

	while (i < conf->options_n && strcmp(conf->options[i].name, name))
		i++;
	return i;
}

static int take_ini_key(void *user, const char *section, const char *name, const char *value)
{
	struct ini_reader *reader = user;
	const struct soda_conf *conf = reader->conf;
	size_t at = find(conf, name);
	char source[160];

	if (reader->status)
		return 1;
	snprintf(source, sizeof(source), "%.140s:%u", reader->path, reader->line);
	if (*section && strcmp(section, conf->program))
		reader->status = soda_conf_fail(reader->err, -EINVAL,
						"%s: unknown section [%.60s], expected [%s]",
						source, section, conf->program);
	else if (at < conf->options_n && reader->seen[at])
		reader->status =
			soda_conf_add(conf, name, value, reader->values, source, reader->err);
	else
		reader->status =
			soda_conf_set(conf, name, value, reader->values, source, reader->err);
	if (!reader->status)
		reader->seen[at] = true;
	return 1;
}

static int parse_ini(struct ini_reader *reader)
{
	int line = ini_parse_stream(read_ini_line, reader, take_ini_key, reader);

	if (reader->status)
		return reader->status;
	if (ferror(reader->file))
		return soda_conf_fail(reader->err, -EIO, "%s: cannot read", reader->path);
	if (line < 0)
		return soda_conf_fail(reader->err, -ENOMEM, "%s: out of memory", reader->path);
	if (line > 0)
		return soda_conf_fail(reader->err, -EINVAL,
				      "%s:%d: expected 'key = value' or '[%s]'", reader->path, line,
				      reader->conf->program);
	return 0;
}

int soda_conf_file(const struct soda_conf *conf, const char *path, void *values,
		   struct soda_conf_error *err)
{
	struct ini_reader reader = { .conf = conf, .values = values, .err = err, .path = path };
	int r;

	reader.file = fopen(path, "re");
	if (!reader.file) {
		r = -errno;
		return soda_conf_fail(err, r, "%s: %s", path, soda_strerror(r));
	}
	reader.seen = calloc(conf->options_n, sizeof(*reader.seen));
	r = reader.seen ? parse_ini(&reader)
			: soda_conf_fail(err, -ENOMEM, "%s: out of memory", path);
	free(reader.seen);
	fclose(reader.file);
	return r;
}
