/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a server answers, as every client reads it: welcome, refusals, the answers of all calls,
 * with descriptors of memory that is what it should be, or is not.  The input is the server
 * (rogue.h), and what the client asks.
 *
 *   the server, then calls: what 8, numbers
 */
#include <errno.h>
#include <unistd.h>

#include "fuzz/fixtures/rogue.h"
#include "fuzz/fuzz.h"
#include "soda.h"
#include "transport/api/transport.h"
#include "transport/shm/shm.h"

enum { CONNECTIONS = 3, TIMEOUT_MS = 5000, REGION = 1, REGION_BYTES = 64 << 10, CALLS_MAX = 40 };

static char address[ROGUE_ADDRESS];

static struct soda_conn *connect_as(enum soda_conn_kind kind, bool in_place)
{
	struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					 .version = SODA_WIRE_VERSION,
					 .chunk_bytes = SODA_WIRE_PAGE,
					 .epoch = 1 };
	struct soda_conn_options opt = { .kind = kind,
					 .timeout_ms = TIMEOUT_MS,
					 .in_place = in_place };
	struct soda_wire_welcome welcome;
	struct soda_why why = { "" };
	struct soda_conn *conn;
	int ret = soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why);

	MUST(ret <= 0 && (ret == 0 || why.text[0]));
	return ret == 0 ? conn : NULL;
}

/* What is mapped can be touched, all of it. */
static void touch(const volatile uint8_t *at, uint64_t bytes)
{
	for (uint64_t i = 0; at && i < bytes; i += SODA_WIRE_PAGE)
		(void)at[i];
}

static bool open_region(struct soda_conn *conn, struct fuzz_input *in, struct soda_mr *mr)
{
	static const uint32_t flags[] = { 0, SODA_READ_ONLY, SODA_WRITABLE, SODA_PRIVATE };
	struct soda_wire_open open = { .region_id = REGION,
				       .flags = flags[fuzz_u8(in) % 4],
				       .bytes = fuzz_u8(in) & 1 ? REGION_BYTES : 0 };
	const char *name = open.flags ? "file" : "";
	struct soda_wire_opened opened;
	struct soda_why why = { "" };
	int ret;

	open.name_bytes = (uint16_t)strlen(name);
	ret = soda_conn_open_region(conn, &open, name, &opened, mr, TIMEOUT_MS, &why);
	MUST(ret <= 0);
	if (ret < 0)
		return false;
	MUST(mr->bytes && opened.bytes && opened.bytes <= mr->bytes);
	touch(mr->map, mr->bytes);
	if (mr->dirty_map)
		touch(mr->dirty_map, soda_dirty_bytes(mr->bytes));
	return true;
}

static void advise(struct soda_conn *conn, struct fuzz_input *in, struct soda_mr *mr)
{
	struct soda_wire_advise a = { REGION, SODA_STATIC_CACHE,
				      (uint64_t)fuzz_u8(in) * SODA_WIRE_PAGE,
				      (uint64_t)fuzz_u8(in) * SODA_WIRE_PAGE };
	struct soda_static_map *map = NULL;
	struct soda_why why = { "" };
	int ret = soda_conn_advise(conn, &a, &map, TIMEOUT_MS, &why);

	MUST(ret <= 0);
	if (ret < 0 || !map)
		return;
	MUST(soda_static_covers(map, a.offset, a.bytes));
	touch(map->memory, map->bytes);
	map->next = mr->statics;
	mr->statics = map;
}

static void call(struct soda_conn *conn, struct fuzz_input *in)
{
	uint8_t type = fuzz_u8(in), text[300] = { 0 };
	struct iovec body = { text, type % 7 };
	size_t capacity = fuzz_u8(in), bytes = 0;
	uint8_t *reply = malloc(capacity + 1);
	struct soda_wire_written written;
	struct soda_why why = { "" };
	int ret;

	MUST(reply);
	ret = soda_conn_call(conn, SODA_MSG_OPEN + type % 12, &body, 1, reply, capacity, &bytes,
			     TIMEOUT_MS, &why);
	MUST(ret <= 0 && (ret < 0 || bytes <= capacity));
	if (ret == 0) /* as unacked.c has it */
		soda_wire_get_written(reply, bytes, &written);
	free(reply);
}

static void transfer(struct fuzz_input *in, const struct soda_mr *mr)
{
	static uint8_t memory[4 * SODA_WIRE_PAGE];
	uint8_t how = fuzz_u8(in);
	struct soda_conn *conn = connect_as(SODA_CONN_DATA, how & 1);
	struct soda_done done[4];
	int n;

	if (!conn)
		return;
	for (uint64_t i = 0; i < 3; i++) {
		soda_conn_post_read(conn, mr, i * SODA_WIRE_PAGE, SODA_WIRE_PAGE, memory, i);
		soda_conn_post_write(conn, mr, i * SODA_WIRE_PAGE, SODA_WIRE_PAGE, memory, i);
	}
	soda_conn_flush(conn, how & 2);
	n = soda_conn_poll(conn, done, 4, how & 4 ? 1000000 : 0, 0);
	for (int i = 0; i < n; i++)
		touch(done[i].data, done[i].data ? done[i].bytes : 0);
	soda_conn_close(conn);
}

static void use(struct soda_conn *conn, struct fuzz_input *in)
{
	struct soda_mr mr = { .bytes = REGION_BYTES, .region_id = REGION, .writable = 1 };
	bool open = false;

	for (int i = 0; i < CALLS_MAX && in->left; i++) {
		switch (fuzz_u8(in) % 5) {
		case 0:
			if (!open)
				open = open_region(conn, in, &mr);
			break;
		case 1:
			if (open)
				advise(conn, in, &mr);
			break;
		case 2:
			transfer(in, &mr);
			break;
		default:
			call(conn, in);
		}
	}
	if (open)
		soda_conn_unmap_region(&mr);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	rogue_start(false, address);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	struct soda_conn *conn;

	rogue_begin(&in, CONNECTIONS);
	conn = connect_as(SODA_CONN_CONTROL, false);
	if (conn) {
		use(conn, &in);
		soda_conn_close(conn);
	}
	rogue_end();
	return 0;
}
