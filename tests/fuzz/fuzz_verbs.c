/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs without a device: what is decoded of private data, on both sides, and of requests in Table
 * I's layout, and of their answers.  librdmacm and the receive buffers are played here. what 8: 0
 * a connection request's private data: length 8, bytes     1  the acceptance's     2  a
 * rejection's: status 8 3  requests: ops: 0,1 a READ  2 a WRITE  3 as it is: opcode 8, imm 32,
 * length 32, bytes  4  answer  5  free  6  sent  7 a WRITE of data that were kept: page 8, pages 8,
 * flags 8, length 8, bytes 4  a key: as it is  5  requests to a listener with
 * a guard: ops: 0  a HELLO  1  the ASK of the tenant that there is  2  of another one  3  the right
 * PROOF  4  but for one bit: which 8  5  the last request once more  6  as it is: 56 bytes
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fuzz/fixtures/daemon.h"
#include "fuzz/fuzz.h"
#include "transport/verbs/server/two_sided.h"

/* These have what reads private data, as functions of their own. */
#include "transport/verbs/client/introduce.c"
#include "transport/verbs/link/link.c"

static struct fuzz_daemon daemon_;
static unsigned buffers_out;

/* verbs_pool.c: buffers as they come from a device */

static struct soda_verbs_pool *const no_pool = NULL;
static struct soda_regcache regcache;

struct soda_regcache *soda_verbs_pool_regcache(const struct soda_verbs_pool *pool)
{
	return &regcache;
}

void soda_verbs_buffer_taken(struct soda_verbs_buffer *b, bool keeps)
{
	buffers_out -= !keeps;
	/* a READ's may be received into again from here on: its end shows who still reads it */
	if (!keeps)
		memset(b->data, 0xee, SODA_WIRE_PAGE);
}

void soda_verbs_buffer_put(struct soda_verbs_buffer *b)
{
	buffers_out--;
	free(b->head);
	free(b->data);
	free(b);
}

bool soda_regcache_lkey(struct soda_regcache *r, const void *at, size_t bytes, uint32_t *lkey_p)
{
	*lkey_p = 1;
	return true;
}

/* The queue pair: what is sent can be read. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (int i = 0; i < wr->num_sge; i++) {
		const volatile uint8_t *at = (const uint8_t *)(uintptr_t)wr->sg_list[i].addr;

		for (uint32_t b = 0; b < wr->sg_list[i].length; b += 256)
			(void)at[b];
	}
	return 0;
}

static void accepted(struct rdma_cm_event *event, bool rejection)
{
	struct soda_why why = { "" };
	struct introduction in = { .rest = "peer:1", .why = &why };
	struct soda_wire_two_sided two_sided = { 0 };
	struct soda_wire_welcome welcome;
	struct soda_wire_frame frame;
	int ret;

	note(&in.heard, &event->param.conn);
	in.heard.accepted = !rejection;
	ret = rejection ? rejected(event, in.rest, &in.heard, &why)
			: take_welcome(&in, SODA_WIRE_VERSION, SODA_VERBS_WELCOME_BYTES, &welcome,
				       &two_sided);
	MUST(ret <= 0 && (ret == 0 || why.text[0]));
	if (ret == 0 && two_sided.message_bytes)
		MUST(two_sided.credits && two_sided.answer <= SODA_ANSWER_SEND);
	if (ret == 0 && rejection) {
		soda_wire_get_frame(in.heard.data, &frame);
		MUST(frame.length <= in.heard.bytes - SODA_WIRE_FRAME_BYTES);
	}
}

static void private_data(uint8_t what, struct fuzz_input *in)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = 7 };
	struct rdma_cm_id id = { .verbs = NULL };
	struct rdma_cm_event event = { .id = &id };
	struct fuzz_verbs_answer answer;
	size_t n = fuzz_u8(in);
	uint8_t *data;

	memcpy(&id.route.addr.dst_addr, &from, sizeof(from));
	event.status = what == 2 ? fuzz_u8(in) : 0;
	n = n < in->left ? n : in->left;
	data = malloc(n + !n); /* exactly: what reads beyond it is seen */
	MUST(data);
	if (n)
		memcpy(data, in->at, n);
	event.param.conn.private_data = n ? data : NULL;
	event.param.conn.private_data_len = (uint8_t)n;
	if (what == 0)
		fuzz_verbs_request(&daemon_.listener, &event, &answer);
	else
		accepted(&event, what == 2);
	free(data);
}

/* A listener with a guard: nobody is let in but by the right proof, once. */

static const uint8_t the_key[SODA_KEY_BYTES] = { 42 };
static int the_tenant;

static int find(void *arg, const char *tenant, const uint8_t *id, uint8_t *key, void **tenant_p,
		char *why)
{
	MUST(!tenant); /* on verbs the key alone tells */
	*tenant_p = &the_tenant;
	if (memcmp(id, the_key, SODA_WIRE_KEY_ID_BYTES)) {
		snprintf(why, 128, "nobody");
		return -EACCES;
	}
	memcpy(key, the_key, sizeof(the_key));
	return 0;
}

static const struct soda_guard guard = { .server = "mem1", .find = find };

/* One who asks to connect, again and again. */
struct stranger {
	uint64_t number;
	struct soda_transcript t;
	uint8_t said[SODA_WIRE_BRIEF_BYTES];
	bool asked; /* the last that was answered was the ASK of the tenant that there is */
};

static bool say(struct stranger *s, struct fuzz_verbs_answer *answer_p)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = 7 };
	struct rdma_cm_id id = { .verbs = NULL };
	struct rdma_cm_event event = { .id = &id };

	memcpy(&id.route.addr.dst_addr, &from, sizeof(from));
	event.param.conn.private_data = s->said;
	event.param.conn.private_data_len = sizeof(s->said);
	return fuzz_verbs_request(&daemon_.listener, &event, answer_p);
}

/* The body of a CHALLENGE of so many bytes, or NULL: it was refused. */
static const uint8_t *body_of(const struct fuzz_verbs_answer *a, uint32_t bytes)
{
	struct soda_wire_frame frame;

	soda_wire_get_frame(a->data, &frame);
	MUST(frame.type == SODA_MSG_CHALLENGE || frame.type == SODA_MSG_REFUSED);
	if (frame.type != SODA_MSG_CHALLENGE || frame.length != bytes)
		return NULL;
	return a->data + SODA_WIRE_FRAME_BYTES;
}

static void say_hello(struct stranger *s)
{
	const struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					       .version = SODA_WIRE_VERSION_PROVED,
					       .kind = SODA_CONN_CONTROL };
	struct fuzz_verbs_answer answer;
	const uint8_t *number;

	soda_wire_put_hello(s->said, &hello);
	memcpy(s->t.hello, s->said, sizeof(s->t.hello));
	MUST(!say(s, &answer));
	number = body_of(&answer, SODA_WIRE_NUMBER_BYTES);
	MUST(number);
	s->number = soda_wire_get_number(number);
	s->asked = false;
}

static void say_ask(struct stranger *s, bool right)
{
	struct soda_wire_brief brief = { .number = s->number };
	struct soda_wire_ask ask = { .nonce = { 1 } };
	uint8_t hello[SODA_WIRE_HELLO_BYTES], asked[SODA_WIRE_ASK_BYTES];
	struct soda_wire_challenge c;
	struct fuzz_verbs_answer answer;
	const uint8_t *body;

	memcpy(ask.key_id, the_key, sizeof(ask.key_id));
	ask.key_id[0] ^= !right;
	memcpy(brief.ask.nonce, ask.nonce, sizeof(ask.nonce));
	memcpy(brief.ask.key_id, ask.key_id, sizeof(ask.key_id));
	soda_wire_put_brief(s->said, SODA_MSG_ASK, &brief);
	MUST(!say(s, &answer));
	body = body_of(&answer, SODA_WIRE_CHALLENGE_BYTES);
	MUST(!body || right);
	s->asked = body;
	if (!body)
		return;
	memcpy(hello, s->t.hello, sizeof(hello));
	soda_wire_put_ask(asked, &ask);
	soda_transcript_begin(&s->t, "mem1", hello, asked);
	soda_wire_get_challenge(body, SODA_WIRE_CHALLENGE_BYTES, &c);
	memcpy(s->t.nonce, c.nonce, sizeof(c.nonce));
	MUST(!soda_proof_check(&s->t, SODA_PROOF_SERVER, the_key, c.mac, sizeof(c.mac)));
}

/* bit < 0: the right one, of whatever has been said before. */
static void say_proof(struct stranger *s, int bit)
{
	struct soda_wire_brief brief = { .number = s->number };
	uint8_t mac[SODA_WIRE_MAC_BYTES];
	struct fuzz_verbs_answer answer;
	bool right = s->asked && bit < 0;

	MUST(!soda_proof_mac(&s->t, SODA_PROOF_CLIENT, the_key, mac));
	memcpy(brief.proof.mac, mac, sizeof(brief.proof.mac));
	if (bit >= 0)
		brief.proof.mac[bit / 8 % sizeof(brief.proof.mac)] ^= (uint8_t)(1 << bit % 8);
	soda_wire_put_brief(s->said, SODA_MSG_PROOF, &brief);
	MUST(say(s, &answer) == right);
	s->asked = false;
}

/* The last request: an ASK ends what it was of, a PROOF is used up, others change nothing. */
static void say_again(struct stranger *s)
{
	struct fuzz_verbs_answer answer;
	struct soda_wire_brief brief;
	int type = soda_wire_get_brief(s->said, sizeof(s->said), &brief);

	MUST(!say(s, &answer));
	if (type == SODA_MSG_ASK && brief.number == s->number)
		s->asked = false;
}

static void guarded(struct fuzz_input *in)
{
	struct stranger s = { .number = 0 };
	struct fuzz_verbs_answer answer;
	struct soda_conf_error err;

	if (soda_crypto_ready(&err))
		return;
	daemon_.listener.opt.guard = &guard;
	daemon_.listener.opt.hello_timeout_ms = 60000;
	while (in->left) {
		switch (fuzz_u8(in) % 7) {
		case 0:
			say_hello(&s);
			break;
		case 1:
			say_ask(&s, true);
			break;
		case 2:
			say_ask(&s, false);
			break;
		case 3:
			say_proof(&s, -1);
			break;
		case 4:
			say_proof(&s, fuzz_u8(in));
			break;
		case 5:
			say_again(&s);
			break;
		default: /* which knows no number: it changes nothing for us */
			memset(s.said, 0, sizeof(s.said));
			fuzz_take(in, s.said, sizeof(s.said));
			MUST(!say(&s, &answer));
		}
	}
	fuzz_verbs_leave();
	daemon_.listener.opt.guard = NULL;
}

/* Requests of one connection */

static struct soda_verbs_conn *begin(struct rdma_cm_id *id, struct soda_verbs_worker *worker)
{
	struct soda_verbs_conn *c = calloc(1, sizeof(*c));
	static struct ibv_mr tags_mr;

	MUST(c);
	c->p.peer =
		(struct soda_peer){ .listener = &daemon_.listener, .client = &daemon_, .fd = -1 };
	c->p.id = id;
	c->worker = worker;
	c->tags = calloc(SODA_VERBS_ANSWERS, SODA_WIRE_TAG_BYTES);
	c->tags_mr = &tags_mr;
	c->refs = 1;
	pthread_mutex_init(&c->lock, NULL);
	MUST(c->tags);
	return c;
}

static struct soda_verbs_buffer *new_buffer(void)
{
	struct soda_verbs_buffer *b = calloc(1, sizeof(*b));

	MUST(b);
	b->head = calloc(1, SODA_WIRE_WRITE_BYTES);
	b->data = malloc(SODA_VERBS_MESSAGE);
	MUST(b->head && b->data);
	memset(b->data, 0, SODA_WIRE_PAGE);
	buffers_out++;
	return b;
}

/* As the device puts a message: its first bytes apart. */
static const char *deliver_message(struct soda_verbs_conn *c, const uint8_t *bytes, uint32_t n,
				   uint32_t imm, uint8_t odd)
{
	struct soda_verbs_buffer *b = new_buffer();
	struct ibv_wc wc = { .opcode = odd & 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
			     .wc_flags = odd & 2 ? 0 : IBV_WC_WITH_IMM,
			     .imm_data = htobe32(imm),
			     .byte_len = n };
	uint32_t head = n < SODA_WIRE_WRITE_BYTES ? n : SODA_WIRE_WRITE_BYTES;
	unsigned before = daemon_.waiting_n;
	const char *why;
	bool kept;

	memcpy(b->head, bytes, head);
	memcpy(b->data, bytes + head, n - head < SODA_WIRE_PAGE ? n - head : SODA_WIRE_PAGE);
	why = soda_verbs_conn_request(c, b, &wc);
	kept = daemon_.waiting_n != before && daemon_.waiting[before]->write;
	MUST(!why == (daemon_.waiting_n != before));
	if (!kept) { /* only a WRITE keeps its buffer */
		free(b->head);
		free(b->data);
		free(b);
	}
	return why;
}

static const char *request(struct soda_verbs_conn *c, struct fuzz_input *in, uint8_t what)
{
	static uint8_t text[SODA_WIRE_WRITE_BYTES + SODA_VERBS_MESSAGE];
	uint8_t page = fuzz_u8(in), flags, odd = 0;
	uint32_t size = fuzz_u8(in) % 18 * SODA_WIRE_PAGE, n, imm;

	flags = fuzz_u8(in);
	imm = (what == 2 ? SODA_MSG_WRITE : SODA_MSG_READ) | (uint32_t)flags << 8;
	n = SODA_WIRE_READ_BYTES + (flags & SODA_WIRE_RESIDENCY ? SODA_WIRE_RESIDENCY_BYTES : 0);
	if (what == 2) {
		soda_wire_put_write(text, &(struct soda_wire_write){ 1, page, size });
		n = SODA_WIRE_WRITE_BYTES + size;
	} else if (what == 3) {
		odd = fuzz_u8(in);
		imm = fuzz_u32(in);
		n = fuzz_u32(in) % sizeof(text);
		fuzz_take(in, text, 64);
	} else {
		soda_wire_put_read(text, &(struct soda_wire_read){ .region_id = 1,
								   .page_offset = page,
								   .dest_addr = page,
								   .size = size });
	}
	return n <= sizeof(text) ? deliver_message(c, text, n, imm, odd) : NULL;
}

/* A WRITE without data: of an origin, or of a code. */
static const char *kept_request(struct soda_verbs_conn *c, struct fuzz_input *in)
{
	uint8_t text[SODA_WIRE_WRITE_BYTES + UINT8_MAX] = { 0 }, page = fuzz_u8(in);
	uint32_t size = fuzz_u8(in) % 18 * SODA_WIRE_PAGE;
	uint32_t flags = fuzz_u8(in) | SODA_WIRE_KEPT, n = fuzz_u8(in);
	unsigned before = daemon_.waiting_n;
	const char *why;

	soda_wire_put_write(text, &(struct soda_wire_write){ 1, page, size });
	fuzz_take(in, text + SODA_WIRE_WRITE_BYTES, n);
	why = deliver_message(c, text, SODA_WIRE_WRITE_BYTES + n, SODA_MSG_WRITE | flags << 8, 0);
	MUST(why || daemon_.waiting[before]->kept);
	return why;
}

static void requests(struct fuzz_input *in)
{
	static struct ibv_context device = { .ops = { .post_send = post_send } };
	static struct ibv_qp qp = { .context = &device };
	static struct soda_verbs_workers workers = { .n = 1 };
	static struct soda_verbs_worker worker = { .all = &workers };
	struct rdma_cm_id id = { .qp = &qp };
	struct soda_verbs_conn *c = begin(&id, &worker);
	const char *why = NULL;
	uint8_t what, which;

	workers.pool = no_pool;
	while (in->left && !why) {
		what = fuzz_u8(in) % 8;
		switch (what) {
		case 4:
			which = fuzz_u8(in);
			fuzz_daemon_answer(&daemon_, which, fuzz_u8(in) & 1 ? -EIO : 0);
			break;
		case 5:
			fuzz_daemon_free(&daemon_, fuzz_u8(in));
			break;
		case 6:
			soda_verbs_conn_sent(c, fuzz_u8(in) & 1 ? c->posted : fuzz_u32(in));
			break;
		case 7:
			why = kept_request(c, in);
			break;
		default:
			why = request(c, in, what);
		}
	}
	while (fuzz_daemon_answer(&daemon_, 0, 0))
		;
	while (fuzz_daemon_free(&daemon_, 0))
		;
	while (c->reaped != c->taken) {
		uint32_t before = c->reaped;

		soda_verbs_conn_sent(c, c->posted);
		MUST(c->reaped != before);
	}
	MUST(!c->pending && !c->held && c->refs == 1 && !buffers_out);
	free(c->tags);
	pthread_mutex_lock(&c->lock);
	soda_verbs_conn_unref_locked(c);
}

static void key(struct fuzz_input *in)
{
	struct soda_wire_two_sided two_sided;
	struct soda_wire_key k;

	soda_wire_get_key(in->at, in->left, &k);
	if (soda_wire_get_two_sided(in->at, in->left, &two_sided) == 0 && two_sided.message_bytes)
		MUST(two_sided.credits);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	uint8_t what = fuzz_u8(&in) % 6;

	buffers_out = 0;
	fuzz_daemon_init(&daemon_, false);
	daemon_.listener.wake_fd = -1;
	if (what == 3)
		requests(&in);
	else if (what == 4)
		key(&in);
	else if (what == 5)
		guarded(&in);
	else
		private_data(what, &in);
	daemon_.gone = true;
	fuzz_daemon_check_end(&daemon_);
	return 0;
}
