/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed files, changed: first byte: 0: a header is read, and what is taken is written as it came;
 * 1: a file with a journal, as a server opens it: nothing but its own content may come of that, all
 * old or all new; 2: header and table, as a program checks them: any change is refused.  The rest:
 * for 1 how much is cut off (u16), then changes: where (u24), with which bits (u8).
 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "mem_server/files/journal.h"
#include "trust/sealed_file.h"

enum { PAGE = SODA_SEALED_PAGE, BLOCKS = 5, CHANGES_MAX = 64 };

static const struct soda_journal_range ranges[] = { { 0, 2 * PAGE }, { 65536, 3 * PAGE } };
static struct soda_sealed_layout layout;
static uint8_t *before, *after, *file;
static int fd;

static void put_header(uint8_t *page, uint64_t commits)
{
	struct soda_sealed_header h = { .cipher = 2,
					.bytes = BLOCKS * PAGE - 3,
					.commits = commits };

	memset(h.salt, 7, sizeof(h.salt));
	soda_sealed_put_header(page, &h);
}

/* The changes that the input says, each in [0, size). Whether there is one from `from` on. */
static bool change(struct fuzz_input *in, uint8_t *data, size_t size, size_t from)
{
	bool any = false;

	for (int i = 0; i < CHANGES_MAX && in->left; i++) {
		size_t at = fuzz_take_number(in, 3) % size;
		uint8_t bits = fuzz_u8(in);

		data[at] ^= bits;
		any = any || (bits && at >= from);
	}
	return any;
}

static void try_header(struct fuzz_input *in)
{
	uint8_t page[PAGE], again[PAGE];
	struct soda_sealed_header h;
	struct soda_sealed_layout l;

	put_header(page, 3);
	change(in, page, in->left % 2 ? PAGE : 128, 0);
	if (soda_sealed_get_header(page, &h))
		return;
	MUST(!soda_sealed_layout(h.bytes, &l) && l.total > l.data_at);
	soda_sealed_put_header(again, &h);
	MUST(!memcmp(page, again, PAGE));
}

static void try_journal(struct fuzz_input *in)
{
	uint64_t cut = fuzz_u16(in), total, size;
	struct soda_why why;
	struct stat st;
	bool torn;

	MUST(!ftruncate(fd, 0));
	MUST(pwrite(fd, before, layout.total, 0) == (ssize_t)layout.total);
	MUST(!soda_journal_write(fd, layout.total, after, ranges, 2) && !fstat(fd, &st));
	size = (uint64_t)st.st_size;
	cut = cut < size - layout.total ? cut : 0;
	MUST(pread(fd, file, size, 0) == (ssize_t)size);
	/* what a trailer's page has behind its 32 bytes does not count */
	torn = change(in, file + layout.total, size - layout.total - PAGE + 32, 0);
	torn = memcmp(file, before, layout.total) || torn || cut;
	MUST(pwrite(fd, file, size, 0) == (ssize_t)size && !ftruncate(fd, (off_t)(size - cut)));
	MUST(!soda_journal_look(fd, size - cut, "file", &total, &why) && total == layout.total);
	if (soda_journal_recover(fd, total))
		return;
	MUST(!fstat(fd, &st) && (uint64_t)st.st_size == total);
	MUST(pread(fd, file, total, 0) == (ssize_t)total);
	MUST(!memcmp(file, before, total) || !memcmp(file, after, total));
	MUST(torn || !memcmp(file, after, total));
}

static void try_open(struct fuzz_input *in)
{
	static const struct soda_sealed_key key = { .root = { 1 }, .id = { 2 } };
	struct soda_conf_error err = { "" };
	uint8_t data[2 * PAGE], good[2 * PAGE];
	struct soda_sealed_file f;
	const char *cipher;
	int ret;

	if (soda_seal_ready(&cipher, &err))
		return; /* without OpenSSL nothing is opened */
	MUST(!soda_sealed_file_make(&key, BLOCKS * PAGE, &f));
	soda_sealed_put_entry(f.table + 32, 9, (const uint8_t *)"0123456789");
	MUST(!soda_sealed_file_changed(&f, 0) && !soda_sealed_file_commit(&f, good));
	memcpy(good + PAGE, f.table, PAGE);
	soda_sealed_file_end(&f);
	memcpy(data, good, sizeof(data));
	change(in, data, sizeof(data), 0);
	ret = soda_sealed_file_begin(&key, data, &f, &err);
	if (!ret) {
		memcpy(f.table, data + PAGE, PAGE);
		ret = soda_sealed_file_check(&key, &f, &err);
		soda_sealed_file_end(&f);
	}
	MUST(!ret == !memcmp(data, good, sizeof(data)));
	MUST(!ret || *err.text);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	MUST(!soda_sealed_layout(BLOCKS * PAGE - 3, &layout));
	fd = memfd_create("sealed", MFD_CLOEXEC);
	before = malloc(layout.total);
	after = malloc(layout.total);
	file = malloc(2 * layout.total);
	MUST(fd >= 0 && before && after && file);
	memset(before, 'b', layout.total);
	put_header(before, 1);
	memcpy(after, before, layout.total);
	for (int i = 0; i < 2; i++)
		memset(after + ranges[i].offset, 'a', ranges[i].bytes);
	put_header(after, 2);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };

	switch (fuzz_u8(&in) % 3) {
	case 0:
		try_header(&in);
		break;
	case 1:
		try_journal(&in);
		break;
	default:
		try_open(&in);
	}
	return 0;
}
