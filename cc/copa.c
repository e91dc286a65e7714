/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Copa (Arun and Balakrishnan, "Copa: Practical delay-based congestion control for the Internet", NSDI 2018, cited
 * as "Copa"): it steers the rate towards 1 / (delta * queueing delay) packets per second, so that about 1/delta
 * packets of each flow wait in the queue. If the queue does not empty now and then, other flows fill it: then
 * (competitive mode) 1/delta grows and halves like Reno's window.
 *
 * The parameter `variant` has two values:
 * - paper: queueing delay is the standing RTT, which is the minimum of half a smoothed RTT, minus the minimum of ten
 *   seconds.
 * - kernel: as in the public module for Linux, which follows Meta's mvfst: queueing delay is the latest RTT minus
 *   the minimum, any sample replaces a minimum older than ten seconds, and pacing uses the smoothed RTT. (One
 *   version of its source takes the smoothed RTT as the latest, too; the behaviour in tests/linux swings faster than
 *   that would allow.) An unused window grows, and undo restores the largest window before any recovery. The module
 *   has no competitive mode, delta = 0.03125 and least_cwnd = 4. It drops fractions of packets; here they count.
 */
#include "minmax.h"
#include "pacing.h"

enum copa_variant { PAPER, KERNEL };

#define COPA_ONE 1024
#define COPA_PARAMS(P)                                                                                    \
	P(delta, COPA_ONE, 512, 1, COPA_ONE, "", "target queue: 1/delta packets")                        \
	P(variant, 1, PAPER, PAPER, KERNEL, "paper|kernel", "how queueing delay is measured: as in the paper, or as in the kernel module") \
	P(competitive, 1, 1, 0, 1, "", "1: adapt 1/delta when other flows keep the queue full")          \
	P(min_rtt_window, 1, 10000, 100, 1000000, "ms", "lifetime of the minimum RTT")                   \
	P(least_cwnd, 1, 2, 1, 1000, "packets", "smallest cwnd")
SKYHOP_PARAMS(COPA_PARAMS);

#define SAME_ROUNDS 3       /* round trips in one direction before the velocity doubles (Copa 2.1) */
#define MAX_VELOCITY 32768  /* beyond any window */
#define MAX_ACKED 256       /* packets that one ACK counts at most: the module's bound */
#define NEARLY_EMPTY 10     /* the queue is nearly empty below a tenth of the RTT's range (Copa 2.2) */
#define SWING_RTTS 4
#define EMPTY_EVERY_RTTS 5
#define MAX_INVERSE (COPA_ONE << 14)
#define FRACTION_SHIFT 16   /* fraction bits of the window */

enum copa_direction { NOWHERE, UP, DOWN };

struct copa {
	struct minmax_filter least_rtt;    /* minimum over min_rtt_window, in ms: paper */
	struct minmax_filter greatest_rtt; /* maximum over four round trips, in us */
	u64 half_began_us;                 /* us; 0: no RTT sample yet */
	u64 direction_at_us;               /* 0: not compared yet */
	u64 direction_cwnd;                /* window at that time, with its fraction */
	u64 doubled_at_us;                 /* in slow start; 0: not doubled yet */
	u64 emptied_at_us;                 /* when the queue was last nearly empty */
	u64 raised_at_us;                  /* when 1/delta last grew, or halved */
	u32 min_rtt_us;
	u32 min_rtt_at;       /* jiffies: kernel */
	u32 half_rtt_us[2];   /* minimum of each half of the standing RTT's window; ~0: none */
	u32 inverse;          /* 1/delta times COPA_ONE */
	u32 velocity;
	u32 fraction;         /* fraction of a packet by which the window exceeds snd_cwnd */
	u32 prior_cwnd;
	u8 half;
	u8 direction;         /* enum copa_direction */
	u8 same_rounds;       /* round trips in the same direction */
	bool slow_start;
};
SKYHOP_STATE(struct copa);

static u32 smoothed_rtt_us(const struct tcp_sock *tp)
{
	return tp->srtt_us ? max_u32(tp->srtt_us >> 3, 1) : USEC_PER_MSEC;
}

static u32 inverse_of_delta(struct sock *sk)
{
	return (u32)(COPA_ONE * COPA_ONE / max_u64(skyhop_param(sk, delta), 1));
}

/* ---- Round-trip times ---- */

/* As in the module, any sample replaces a minimum that is ten seconds old. */
static void restart_min_rtt(struct sock *sk, struct copa *copa, u32 rtt_us)
{
	u32 now = skyhop_jiffies(sk);
	u32 window = (u32)(skyhop_param(sk, min_rtt_window) * skyhop_hz(sk) / 1000);

	if (copa->half_began_us && rtt_us > copa->min_rtt_us && !after(now, copa->min_rtt_at + window))
		return;
	copa->min_rtt_us = rtt_us;
	copa->min_rtt_at = now;
}

static void take_min_rtt(struct sock *sk, struct copa *copa, u32 rtt_us)
{
	u32 now_ms = (u32)(tcp_sk(sk)->tcp_mstamp / USEC_PER_MSEC);

	if (skyhop_param(sk, variant) == KERNEL)
		restart_min_rtt(sk, copa, rtt_us);
	else if (!copa->half_began_us)
		copa->min_rtt_us = minmax_restart(&copa->least_rtt, now_ms, rtt_us);
	else
		copa->min_rtt_us = minmax_running_min(&copa->least_rtt, (u32)skyhop_param(sk, min_rtt_window),
						      now_ms, rtt_us);
}

/* Standing RTT: minimum of half a smoothed RTT, so that a few late ACKs do not count (Copa 2). Kept in two halves,
 * so the window is between a quarter and a half of an RTT long. */
static u32 take_standing_rtt(struct copa *copa, u64 now_us, u32 srtt_us, u32 rtt_us)
{
	u64 half_us = max_u32(srtt_us / 4, 1);
	u64 halves;

	if (!copa->half_began_us) {
		copa->half_began_us = now_us;
		copa->half_rtt_us[0] = copa->half_rtt_us[1] = ~0U;
	}
	halves = (now_us - copa->half_began_us) / half_us;
	if (halves) {
		copa->half_began_us += halves * half_us;
		copa->half ^= halves & 1;
		copa->half_rtt_us[copa->half & 1] = ~0U;
		if (halves > 1)
			copa->half_rtt_us[!(copa->half & 1)] = ~0U;
	}
	copa->half_rtt_us[copa->half & 1] = min_u32(copa->half_rtt_us[copa->half & 1], rtt_us);
	return min_u32(copa->half_rtt_us[0], copa->half_rtt_us[1]);
}

/* ---- Competitive mode: Copa 2.2 ---- */

/* Detect competing flows: with Copa alone the queue is nearly empty at least every five round trips. */
static void look_for_others(struct copa *copa, u64 now_us, u32 srtt_us, u32 rtt_us, u32 queue_us)
{
	u32 greatest_us;

	if (!copa->emptied_at_us) {
		copa->emptied_at_us = now_us;
		minmax_restart(&copa->greatest_rtt, (u32)now_us, rtt_us);
	}
	greatest_us = minmax_running_max(&copa->greatest_rtt, SWING_RTTS * srtt_us, (u32)now_us, rtt_us);
	if ((u64)queue_us * NEARLY_EMPTY <= greatest_us - min_u32(copa->min_rtt_us, greatest_us))
		copa->emptied_at_us = now_us;
}

/* Adapt 1/delta: one packet more per round trip while other flows compete, at once back to its configured value
 * otherwise. */
static void compete(struct sock *sk, struct copa *copa, u64 now_us, u32 srtt_us)
{
	if (now_us - copa->emptied_at_us <= (u64)EMPTY_EVERY_RTTS * srtt_us) {
		copa->inverse = inverse_of_delta(sk);
		copa->raised_at_us = now_us;
	} else if (now_us - copa->raised_at_us >= srtt_us) {
		copa->inverse = min_u32(copa->inverse + COPA_ONE, MAX_INVERSE);
		copa->raised_at_us = now_us;
	}
}

/* ---- The window ---- */

static u64 exact_cwnd(struct sock *sk, const struct copa *copa)
{
	return ((u64)tcp_sk(sk)->snd_cwnd << FRACTION_SHIFT) + copa->fraction;
}

static void set_exact_cwnd(struct sock *sk, struct copa *copa, u64 cwnd)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 least = skyhop_param(sk, least_cwnd) << FRACTION_SHIFT;
	u64 most = (u64)tp->snd_cwnd_clamp << FRACTION_SHIFT;

	cwnd = min_u64(max_u64(cwnd, least), most);
	tp->snd_cwnd = (u32)(cwnd >> FRACTION_SHIFT);
	copa->fraction = (u32)(cwnd & ((1U << FRACTION_SHIFT) - 1));
}

static void turn(struct sock *sk, struct copa *copa, u64 now_us, u8 direction)
{
	copa->direction = direction;
	copa->velocity = 1;
	copa->same_rounds = 0;
	copa->direction_at_us = now_us;
	copa->direction_cwnd = exact_cwnd(sk, copa);
}

/* Check once per round trip whether the window kept its direction (Copa 2.1). */
static void check_direction(struct sock *sk, struct copa *copa, u64 now_us, u32 srtt_us)
{
	u8 direction;

	if (!copa->direction_at_us) {
		turn(sk, copa, now_us, NOWHERE);
		return;
	}
	if (now_us - copa->direction_at_us < srtt_us)
		return;
	direction = exact_cwnd(sk, copa) > copa->direction_cwnd ? UP : DOWN;
	if (direction != copa->direction) {
		turn(sk, copa, now_us, direction);
		return;
	}
	copa->same_rounds = (u8)min_u32(copa->same_rounds + 1U, SAME_ROUNDS);
	if (copa->same_rounds == SAME_ROUNDS)
		copa->velocity = min_u32(copa->velocity * 2, MAX_VELOCITY);
	copa->direction_at_us = now_us;
	copa->direction_cwnd = exact_cwnd(sk, copa);
}

/* Change of the window: velocity / delta packets per round trip (Copa 2). */
static u64 step(struct sock *sk, const struct copa *copa, u32 acked)
{
	u64 packets = (u64)min_u32(max_u32(acked, 1), MAX_ACKED) * copa->velocity * copa->inverse;

	/* 8, 15 and 24 bits: FRACTION_SHIFT more fit 64 bits */
	return (packets << FRACTION_SHIFT) / ((u64)COPA_ONE * max_u32(tcp_sk(sk)->snd_cwnd, 1));
}

/* Whether the window may grow: an unused window does not (RFC 7661 4.3), except in the module. */
static bool may_grow(struct sock *sk)
{
	return skyhop_param(sk, variant) == KERNEL || tcp_is_cwnd_limited(sk);
}

/* Double the window per round trip until the target is exceeded for the first time (Copa 2.1). */
static void start_slowly(struct sock *sk, struct copa *copa, u64 now_us, u32 srtt_us)
{
	if (copa->doubled_at_us && now_us - copa->doubled_at_us <= srtt_us)
		return;
	if (copa->doubled_at_us && may_grow(sk))
		set_exact_cwnd(sk, copa, 2 * exact_cwnd(sk, copa));
	copa->doubled_at_us = now_us;
}

/* Move the window towards the target. A change of direction resets the velocity at once; otherwise it would carry
 * the window on. */
static void move(struct sock *sk, struct copa *copa, u64 now_us, u32 acked, u8 direction)
{
	u64 cwnd = exact_cwnd(sk, copa);
	u64 by;

	if (copa->direction != direction && copa->velocity > 1)
		turn(sk, copa, now_us, direction);
	by = direction == UP && !may_grow(sk) ? 0 : step(sk, copa, acked);
	set_exact_cwnd(sk, copa, direction == UP ? cwnd + by : cwnd - min_u64(by, cwnd));
}

/* Pace at two windows per round trip, which spreads bursts but leaves the window as the limit. */
static void pace(struct sock *sk, u32 rtt_us)
{
	u64 bytes = (u64)tcp_sk(sk)->snd_cwnd * tcp_sk(sk)->mss_cache;

	pacing_set_rate(sk, max_u64(2 * bytes * USEC_PER_SEC / rtt_us, 1));
}

static void on_rtt(struct sock *sk, struct copa *copa, u32 rtt_us, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 now_us = tp->tcp_mstamp;
	u32 srtt_us = smoothed_rtt_us(tp);
	bool is_kernel = skyhop_param(sk, variant) == KERNEL;
	u32 standing_us, queue_us;
	bool is_below;

	take_min_rtt(sk, copa, rtt_us);
	standing_us = take_standing_rtt(copa, now_us, srtt_us, rtt_us);
	if (standing_us < copa->min_rtt_us)
		return;
	queue_us = (is_kernel ? rtt_us : standing_us) - copa->min_rtt_us;
	if (skyhop_param(sk, competitive)) {
		look_for_others(copa, now_us, srtt_us, rtt_us, queue_us);
		compete(sk, copa, now_us, srtt_us);
	}
	/* cwnd / standing <= 1 / (delta * queue) */
	is_below = (u64)tp->snd_cwnd * queue_us <= (u64)copa->inverse * standing_us / COPA_ONE;
	if (!is_below)
		copa->slow_start = false;
	if (copa->slow_start) {
		start_slowly(sk, copa, now_us, srtt_us);
	} else {
		check_direction(sk, copa, now_us, srtt_us);
		move(sk, copa, now_us, acked, is_below ? UP : DOWN);
	}
	pace(sk, is_kernel ? srtt_us : standing_us);
}

/* ---- The hooks ---- */

SKYHOP_HOOK(void, copa_init, struct sock *sk)
{
	struct copa *copa = skyhop_state_create(sk);

	if (!copa)
		return;
	*copa = (struct copa){ .slow_start = true, .velocity = 1, .inverse = inverse_of_delta(sk) };
	copa->prior_cwnd = tcp_sk(sk)->snd_cwnd;
	tcp_sk(sk)->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	pace(sk, smoothed_rtt_us(tcp_sk(sk)));
	pacing_request(sk);
}

SKYHOP_HOOK(void, copa_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct copa *copa = skyhop_state(sk);

	(void)ack;
	(void)flag;
	if (copa && rs->rtt_us >= 0 && !rs->is_ack_delayed)
		on_rtt(sk, copa, max_u32((u32)rs->rtt_us, 1), rs->acked_sacked);
}

/* Window that undo restores: the one before this recovery or, with variant kernel, the largest before any recovery. */
static u32 prior_cwnd(struct sock *sk, const struct copa *copa)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	return skyhop_param(sk, variant) == KERNEL ? max_u32(copa->prior_cwnd, cwnd) : cwnd;
}

/* In competitive mode a loss halves 1/delta, once per round trip (Copa 2.2); otherwise it has no effect. */
SKYHOP_HOOK(u32, copa_ssthresh, struct sock *sk)
{
	struct copa *copa = skyhop_state(sk);

	if (copa) {
		copa->prior_cwnd = prior_cwnd(sk, copa);
		copa->inverse = max_u32(copa->inverse / 2, inverse_of_delta(sk));
		copa->raised_at_us = tcp_sk(sk)->tcp_mstamp;
	}
	return tcp_sk(sk)->snd_ssthresh;
}

/* Forget the path's state after a timeout. The module goes on as if nothing had happened. */
SKYHOP_HOOK(void, copa_set_state, struct sock *sk, u8 new_state)
{
	struct copa *copa = skyhop_state(sk);

	if (!copa || new_state != TCP_CA_Loss || skyhop_param(sk, variant) == KERNEL)
		return;
	copa->slow_start = true;
	copa->doubled_at_us = 0;
	turn(sk, copa, tcp_sk(sk)->tcp_mstamp, NOWHERE);
}

SKYHOP_HOOK(u32, copa_undo_cwnd, struct sock *sk)
{
	struct copa *copa = skyhop_state(sk);

	return copa ? max_u32(tcp_sk(sk)->snd_cwnd, copa->prior_cwnd) : tcp_sk(sk)->snd_cwnd;
}

/* As Linux does for BBR: one window in flight, one for recovery, and one for the next round. */
SKYHOP_HOOK(u32, copa_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return 3;
}

SKYHOP_MODULE(copa, "Copa: a target number of queued packets, from delay; a competitive mode",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(copa_init),
	      .ssthresh = SKYHOP_FN(copa_ssthresh),
	      .cong_control = SKYHOP_FN(copa_cong_control),
	      .set_state = SKYHOP_FN(copa_set_state),
	      .undo_cwnd = SKYHOP_FN(copa_undo_cwnd),
	      .sndbuf_expand = SKYHOP_FN(copa_sndbuf_expand));
