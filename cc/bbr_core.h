/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00, cited as "draft") with what Linux adds to it:
 * a long-term bandwidth against policers, an allowance for aggregated ACKs, a pacing margin, and packets
 * counted at their departure time. For the modules that are made of it.
 *
 * Bandwidths are packets per microsecond times 2^24, gains are multiples of 1/256.
 *
 * A module defines BBR_OWN_PARAMS(P), the rows of its own parameters (none is fine), and then includes this.
 * Its state holds a `struct bbr`, its hooks call the functions under "At the hooks" at the hooks' places.
 */
#ifndef SKYHOP_BBR_CORE_H
#define SKYHOP_BBR_CORE_H

#include "skyhop_cc.h"

#define BW_SHIFT 24
#define BW_ONE (1ULL << BW_SHIFT)
#define GAIN_SHIFT 8
#define GAIN_ONE (1 << GAIN_SHIFT)
#define CYCLE_PHASES 8
#define MIN_CWND 4
#define SMALL_BURST_RATE (1200000 / 8) /* bytes per second */
#define MAX_BURST_BYTES (65536 - 1 - 320)
#define MAX_BURST_SEGMENTS 127
#define NO_RTT (~0U)

/* Linux's long-term sampling (policers) */
#define LT_MIN_ROUNDS 4
#define LT_MAX_ROUNDS (4 * LT_MIN_ROUNDS)
#define LT_LOST_OF_256 50
#define LT_NEAR_BYTES_PER_SEC (4000 / 8)
#define LT_USE_ROUNDS 48

/* Linux's ACK aggregation */
#define AGGREGATION_ROUNDS 5
#define AGGREGATION_MAX_US (100 * USEC_PER_MSEC)
#define AGGREGATION_MAX_ACKED ((1 << 20) - 1)

#define BBR_PARAMS(P)                                                                                     \
	P(startup_gain, GAIN_ONE, 739, 257, 2560, "", "pacing and cwnd gain of STARTUP: 2/ln 2")          \
	P(drain_gain, GAIN_ONE, 88, 1, 255, "", "pacing gain of DRAIN")                                   \
	P(cwnd_gain, GAIN_ONE, 512, 256, 2560, "", "cwnd in BDPs in PROBE_BW")                            \
	P(probe_gain, GAIN_ONE, 320, 257, 511, "", "pacing gain of the cycle's first phase")             \
	P(bw_window, 1, 10, 1, 1000, "rounds", "how long a bandwidth sample counts")                      \
	P(min_rtt_window, 1, 10000, 100, 1000000, "ms", "how long an RTT sample counts")                  \
	P(probe_rtt_time, 1, 200, 0, 10000, "ms", "least time in PROBE_RTT; 0: no PROBE_RTT")             \
	P(full_bw_growth, GAIN_ONE, 320, 257, 1024, "", "growth per round that keeps STARTUP going")      \
	P(full_bw_rounds, 1, 3, 1, 100, "rounds", "rounds without it that end STARTUP")                   \
	P(pacing_margin, 1, 1, 0, 50, "percent", "how much slower than the estimate pacing is")           \
	P(extra_acked_gain, GAIN_ONE, 256, 0, 1024, "", "cwnd for aggregated ACKs; 0: none")              \
	P(long_term, 1, 1, 0, 1, "", "1: look for policers")                                              \
	BBR_OWN_PARAMS(P)
SKYHOP_PARAMS(BBR_PARAMS);

enum bbr_mode {
	STARTUP,   /* raise the rate until the pipe is full */
	DRAIN,     /* empty the queue that this built up */
	PROBE_BW,  /* cruise, and look for more bandwidth once per cycle */
	PROBE_RTT, /* be small for a moment, to see the path without our own queue */
};

struct bbr {
	struct windowed_max max_bw; /* over rounds */
	u64 cycle_start_us;
	u64 aggregation_start_us;
	u32 min_rtt_us; /* NO_RTT: no sample yet */
	u32 min_rtt_at; /* jiffies */
	u32 probe_rtt_ends_at; /* jiffies; 0: not yet down to the least window */
	u32 rounds;
	u32 round_end_delivered;
	u32 pacing_gain;
	u32 cwnd_gain;
	u32 prior_cwnd; /* the last good one before recovery or PROBE_RTT */
	u32 full_bw;
	u32 full_bw_rounds;
	u32 lt_bw; /* 0: no interval is complete */
	u32 lt_start_ms;
	u32 lt_start_delivered;
	u32 lt_start_lost;
	u32 lt_rounds;
	u32 aggregation_acked;
	u32 aggregation_rounds;
	u32 extra_acked[2]; /* maxima of the two last windows */
	u32 extra_acked_now;
	u32 phase;
	u8 mode; /* enum bbr_mode */
	u8 prior_ca_state;
	bool round_starts;
	bool packet_conservation;
	bool probe_rtt_round_done;
	bool idle_restart;
	bool has_seen_rtt;
	bool pipe_is_full;
	bool lt_is_sampling;
	bool lt_is_used;
};

static u32 max_bw(const struct bbr *bbr)
{
	return bbr->max_bw.best.v;
}

static u32 bandwidth(const struct bbr *bbr)
{
	return bbr->lt_is_used ? bbr->lt_bw : max_bw(bbr);
}

static u64 us_since(u64 then, u64 now)
{
	return now > then ? now - then : 0;
}

static u32 ticks_of_ms(struct sock *sk, u64 ms)
{
	return (u32)((ms * skyhop_hz(sk) + 999) / 1000);
}

/* ---- Pacing rate and bursts ---- */

static u64 bytes_per_sec(struct sock *sk, u64 bw, u32 gain)
{
	u64 scaled = bw * tcp_sk(sk)->mss_cache * gain >> GAIN_SHIFT;

	/* Linux: a little under the estimate, so that no queue persists */
	return scaled * (USEC_PER_SEC / 100 * (100 - skyhop_param(sk, pacing_margin))) >> BW_SHIFT;
}

/* draft 4.2.1: before there is a bandwidth, a window per RTT; 1 ms where there is no RTT either */
static void pace_by_first_rtt(struct sock *sk, struct bbr *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 rtt_us = USEC_PER_MSEC;

	if (tp->srtt_us) {
		rtt_us = max_u32(tp->srtt_us >> 3, 1);
		bbr->has_seen_rtt = true;
	}
	sk->sk_pacing_rate = min_u64(bytes_per_sec(sk, tp->snd_cwnd * BW_ONE / rtt_us, (u32)skyhop_param(sk, startup_gain)),
				     sk->sk_max_pacing_rate);
}

/* draft 4.2.1: until the pipe is full the rate only rises */
static void set_pacing_rate(struct sock *sk, struct bbr *bbr, u32 bw, u32 gain)
{
	u64 rate = min_u64(bytes_per_sec(sk, bw, gain), sk->sk_max_pacing_rate);

	if (!bbr->has_seen_rtt && tcp_sk(sk)->srtt_us)
		pace_by_first_rtt(sk, bbr);
	if (bbr->pipe_is_full || rate > sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate;
}

/* draft 4.2.2: one packet per burst below 1.2 Mbit/s, two above */
static u32 least_burst(struct sock *sk)
{
	return sk->sk_pacing_rate < SMALL_BURST_RATE ? 1 : 2;
}

static u32 burst_goal(struct sock *sk)
{
	u64 bytes = min_u64(sk->sk_pacing_rate >> (sk->sk_pacing_shift & 31), MAX_BURST_BYTES);
	u32 segments = (u32)(bytes / max_u32(tcp_sk(sk)->mss_cache, 1));

	return min_u32(max_u32(segments, least_burst(sk)), MAX_BURST_SEGMENTS);
}

/* ---- Windows ---- */

/* draft 4.2.3.2: gain times the bandwidth-delay product, rounded up */
static u32 bdp(const struct bbr *bbr, u32 bw, u32 gain)
{
	u64 product = (u64)bw * bbr->min_rtt_us;

	if (bbr->min_rtt_us == NO_RTT)
		return TCP_INIT_CWND;
	return (u32)(((product * gain >> GAIN_SHIFT) + BW_ONE - 1) / BW_ONE);
}

/* draft 4.2.3.2: three bursts more: in the sender, in the receiver, on the way. Linux: an even number, for
 * receivers that acknowledge every other packet; two more when probing, so that small windows probe too. */
static u32 with_burst_allowance(struct sock *sk, const struct bbr *bbr, u32 cwnd)
{
	cwnd += 3 * burst_goal(sk);
	cwnd = (cwnd + 1) & ~1U;
	if (bbr->mode == PROBE_BW && bbr->phase == 0)
		cwnd += 2;
	return cwnd;
}

static u32 inflight_for(struct sock *sk, const struct bbr *bbr, u32 bw, u32 gain)
{
	return with_burst_allowance(sk, bbr, bdp(bbr, bw, gain));
}

/* Linux: what will be in the network when pacing lets the next packet go */
static u32 inflight_at_departure(struct sock *sk, const struct bbr *bbr, u32 inflight_now)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 wait_us = us_since(tp->tcp_clock_cache, tp->tcp_wstamp_ns) / NSEC_PER_USEC;
	u32 delivered = (u32)(bandwidth(bbr) * wait_us >> BW_SHIFT);
	u32 inflight = inflight_now;

	if (bbr->pacing_gain > GAIN_ONE)
		inflight += burst_goal(sk);
	return delivered >= inflight ? 0 : inflight - delivered;
}

/* Linux: what aggregated ACKs held back lately, at most what 100 ms carry */
static u32 aggregation_cwnd(struct sock *sk, const struct bbr *bbr)
{
	u32 most;
	u64 extra;

	if (!bbr->pipe_is_full)
		return 0;
	most = (u32)(bandwidth(bbr) * AGGREGATION_MAX_US / BW_ONE);
	extra = max_u32(bbr->extra_acked[0], bbr->extra_acked[1]);
	return (u32)min_u64(skyhop_param(sk, extra_acked_gain) * extra >> GAIN_SHIFT, most);
}

/* draft 4.2.3.4: BBRSaveCwnd */
static void save_cwnd(struct sock *sk, struct bbr *bbr)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	if (bbr->prior_ca_state < TCP_CA_Recovery && bbr->mode != PROBE_RTT)
		bbr->prior_cwnd = cwnd;
	else
		bbr->prior_cwnd = max_u32(bbr->prior_cwnd, cwnd);
}

/* draft 4.2.3.4: in the first round of recovery one packet leaves for one delivered; at its end the window
 * before it returns. */
static u32 cwnd_of_recovery(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 inflight = tcp_packets_in_flight(tp);
	u8 prior = bbr->prior_ca_state, state = tcp_ca_state(sk);
	u32 cwnd = tp->snd_cwnd;

	if (rs->losses > 0)
		cwnd = cwnd > (u32)rs->losses ? cwnd - (u32)rs->losses : 1;
	if (state == TCP_CA_Recovery && prior != TCP_CA_Recovery) {
		bbr->packet_conservation = true;
		bbr->round_end_delivered = tp->delivered;
		cwnd = inflight + acked;
	} else if (prior >= TCP_CA_Recovery && state < TCP_CA_Recovery) {
		bbr->packet_conservation = false;
		cwnd = max_u32(cwnd, bbr->prior_cwnd);
	}
	bbr->prior_ca_state = state;
	return bbr->packet_conservation ? max_u32(cwnd, inflight + acked) : cwnd;
}

/* draft 4.2.3.6: up by what was delivered, down at once, never under four packets */
static u32 cwnd_towards_target(struct sock *sk, const struct bbr *bbr, u32 cwnd, u32 acked)
{
	u32 wanted = bdp(bbr, bandwidth(bbr), bbr->cwnd_gain) + aggregation_cwnd(sk, bbr);
	u32 target = with_burst_allowance(sk, bbr, wanted);

	if (bbr->pipe_is_full)
		cwnd = min_u32(cwnd + acked, target);
	else if (cwnd < target || tcp_sk(sk)->delivered < TCP_INIT_CWND)
		cwnd += acked;
	return max_u32(cwnd, MIN_CWND);
}

static void set_cwnd(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 acked = rs->acked_sacked;
	u32 cwnd = tp->snd_cwnd;

	if (acked) {
		cwnd = cwnd_of_recovery(sk, bbr, rs, acked);
		if (!bbr->packet_conservation)
			cwnd = cwnd_towards_target(sk, bbr, cwnd, acked);
	}
	cwnd = min_u32(cwnd, tp->snd_cwnd_clamp);
	/* draft 4.2.3.5 */
	if (bbr->mode == PROBE_RTT)
		cwnd = min_u32(cwnd, MIN_CWND);
	tp->snd_cwnd = cwnd;
}

/* ---- The cycle of PROBE_BW ---- */

/* draft 4.3.4.1: up, down, and six phases at the estimate */
static u32 gain_of_phase(struct sock *sk, u32 phase)
{
	u32 up = (u32)skyhop_param(sk, probe_gain);

	switch (phase) {
	case 0:
		return up;
	case 1:
		return 2 * GAIN_ONE - up;
	default:
		return GAIN_ONE;
	}
}

static void next_phase(struct sock *sk, struct bbr *bbr)
{
	bbr->phase = (bbr->phase + 1) & (CYCLE_PHASES - 1);
	bbr->cycle_start_us = tcp_sk(sk)->delivered_mstamp;
}

/* draft 4.3.4.2: flows start in different phases, none by emptying the queue */
static void enter_probe_bw(struct sock *sk, struct bbr *bbr)
{
	bbr->mode = PROBE_BW;
	bbr->phase = CYCLE_PHASES - 1 - skyhop_random(sk, CYCLE_PHASES - 1);
	next_phase(sk, bbr);
}

/* draft 4.3.4.3: a phase lasts a min_rtt; the first until the queue is there or loss shows that it cannot be,
 * the second no longer than until it is gone. */
static bool phase_is_over(struct sock *sk, const struct bbr *bbr, const struct rate_sample *rs)
{
	bool is_full_length = us_since(bbr->cycle_start_us, tcp_sk(sk)->delivered_mstamp) > bbr->min_rtt_us;
	u32 inflight;

	if (bbr->pacing_gain == GAIN_ONE)
		return is_full_length;
	inflight = inflight_at_departure(sk, bbr, rs->prior_in_flight);
	if (bbr->pacing_gain > GAIN_ONE)
		return is_full_length &&
		       (rs->losses > 0 || inflight >= inflight_for(sk, bbr, max_bw(bbr), bbr->pacing_gain));
	return is_full_length || inflight <= inflight_for(sk, bbr, max_bw(bbr), GAIN_ONE);
}

static void check_cycle_phase(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	if (bbr->mode == PROBE_BW && phase_is_over(sk, bbr, rs))
		next_phase(sk, bbr);
}

/* ---- Long-term bandwidth: Linux's answer to policers (draft-01 does without; Flach et al., 2016) ---- */

static void lt_start_interval(struct sock *sk, struct bbr *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	bbr->lt_start_ms = (u32)(tp->delivered_mstamp / USEC_PER_MSEC);
	bbr->lt_start_delivered = tp->delivered;
	bbr->lt_start_lost = tp->lost;
	bbr->lt_rounds = 0;
}

static void lt_forget(struct sock *sk, struct bbr *bbr)
{
	bbr->lt_bw = 0;
	bbr->lt_is_used = false;
	bbr->lt_is_sampling = false;
	lt_start_interval(sk, bbr);
}

/* Two intervals in a row with much loss and the same rate (within an eighth or 4 kbit/s): a policer's rate. */
static void lt_interval_is_done(struct sock *sk, struct bbr *bbr, u32 bw)
{
	u32 gap = max_u32(bw, bbr->lt_bw) - min_u32(bw, bbr->lt_bw);

	if (bbr->lt_bw &&
	    (gap <= bbr->lt_bw / 8 || bytes_per_sec(sk, gap, GAIN_ONE) <= LT_NEAR_BYTES_PER_SEC)) {
		bbr->lt_bw = (u32)(((u64)bw + bbr->lt_bw) / 2);
		bbr->lt_is_used = true;
		bbr->pacing_gain = GAIN_ONE;
		bbr->lt_rounds = 0;
		return;
	}
	bbr->lt_bw = bw;
	lt_start_interval(sk, bbr);
}

/* An interval that begins and ends with a loss, is 4 to 16 rounds long and loses a fifth. */
static void lt_measure(struct sock *sk, struct bbr *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 lost = tp->lost - bbr->lt_start_lost;
	u64 delivered = tp->delivered - bbr->lt_start_delivered;
	s32 ms = (s32)((u32)(tp->delivered_mstamp / USEC_PER_MSEC) - bbr->lt_start_ms);

	if (!delivered || lost * 256 < LT_LOST_OF_256 * delivered || ms < 1)
		return;
	lt_interval_is_done(sk, bbr, (u32)(delivered * BW_ONE / ((u64)ms * USEC_PER_MSEC)));
}

/* What is found is used for 48 rounds of PROBE_BW, then the path is probed anew. */
static void lt_use(struct sock *sk, struct bbr *bbr)
{
	if (bbr->mode != PROBE_BW || !bbr->round_starts)
		return;
	if (++bbr->lt_rounds >= LT_USE_ROUNDS) {
		lt_forget(sk, bbr);
		enter_probe_bw(sk, bbr);
	}
}

static void lt_sample(struct sock *sk, struct bbr *bbr, bool has_losses, bool is_app_limited)
{
	if (!skyhop_param(sk, long_term))
		return;
	if (bbr->lt_is_used) {
		lt_use(sk, bbr);
		return;
	}
	if (!bbr->lt_is_sampling) {
		if (!has_losses)
			return;
		lt_start_interval(sk, bbr);
		bbr->lt_is_sampling = true;
	}
	bbr->lt_rounds += bbr->round_starts;
	if (is_app_limited || bbr->lt_rounds > LT_MAX_ROUNDS)
		lt_forget(sk, bbr);
	else if (has_losses && bbr->lt_rounds >= LT_MIN_ROUNDS)
		lt_measure(sk, bbr);
}

/* ---- The model ---- */

/* draft 4.1.1.3: a round ends when something is acknowledged that was sent after its start */
static void count_rounds(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	bbr->round_starts = false;
	if (rs->interval_us <= 0 || rs->delivered < 0 || before(rs->prior_delivered, bbr->round_end_delivered))
		return;
	bbr->round_end_delivered = tcp_sk(sk)->delivered;
	bbr->rounds++;
	bbr->round_starts = true;
	bbr->packet_conservation = false;
}

/* draft 4.1.1: the largest delivery rate of ten rounds; what the application limited counts if it is larger */
static void update_bandwidth(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	u64 bw;

	count_rounds(sk, bbr, rs);
	if (rs->delivered < 0 || rs->interval_us <= 0)
		return;
	lt_sample(sk, bbr, rs->losses > 0, rs->is_app_limited);
	bw = (u64)rs->delivered * BW_ONE / (u64)rs->interval_us;
	if (!rs->is_app_limited || bw >= max_bw(bbr))
		windowed_max_update(&bbr->max_bw, (u32)skyhop_param(sk, bw_window), bbr->rounds, (u32)bw);
}

static void start_aggregation_epoch(struct bbr *bbr, u64 now_us)
{
	bbr->aggregation_start_us = now_us;
	bbr->aggregation_acked = 0;
}

/* Linux: the largest excess of ACKs over what the bandwidth explains, in the last five to ten rounds */
static void update_aggregation(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 expected, extra, *slot;

	if (!skyhop_param(sk, extra_acked_gain) || !rs->acked_sacked || rs->delivered < 0 || rs->interval_us <= 0)
		return;
	if (bbr->round_starts && ++bbr->aggregation_rounds >= AGGREGATION_ROUNDS) {
		bbr->aggregation_rounds = 0;
		bbr->extra_acked_now = !bbr->extra_acked_now;
		bbr->extra_acked[bbr->extra_acked_now & 1] = 0;
	}
	expected = (u32)(bandwidth(bbr) * us_since(bbr->aggregation_start_us, tp->delivered_mstamp) / BW_ONE);
	if (bbr->aggregation_acked <= expected ||
	    bbr->aggregation_acked + rs->acked_sacked > AGGREGATION_MAX_ACKED) {
		start_aggregation_epoch(bbr, tp->delivered_mstamp);
		expected = 0;
	}
	bbr->aggregation_acked = min_u32(bbr->aggregation_acked + rs->acked_sacked, AGGREGATION_MAX_ACKED);
	extra = min_u32(bbr->aggregation_acked - expected, tp->snd_cwnd);
	slot = &bbr->extra_acked[bbr->extra_acked_now & 1];
	*slot = max_u32(*slot, extra);
}

/* draft 4.3.2.2: three rounds in which the bandwidth grew by less than a quarter */
static void check_full_pipe(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	u64 enough = bbr->full_bw * skyhop_param(sk, full_bw_growth) >> GAIN_SHIFT;

	if (bbr->pipe_is_full || !bbr->round_starts || rs->is_app_limited)
		return;
	if (max_bw(bbr) >= enough) {
		bbr->full_bw = max_bw(bbr);
		bbr->full_bw_rounds = 0;
		return;
	}
	bbr->pipe_is_full = ++bbr->full_bw_rounds >= skyhop_param(sk, full_bw_rounds);
}

/* draft 4.3.3: what is in flight falls to one BDP */
static void check_drain(struct sock *sk, struct bbr *bbr)
{
	u32 one_bdp;

	if (bbr->mode != DRAIN && !(bbr->mode == STARTUP && bbr->pipe_is_full))
		return;
	one_bdp = inflight_for(sk, bbr, max_bw(bbr), GAIN_ONE);
	if (bbr->mode == STARTUP) {
		bbr->mode = DRAIN;
		tcp_sk(sk)->snd_ssthresh = one_bdp;
	}
	if (inflight_at_departure(sk, bbr, tcp_packets_in_flight(tcp_sk(sk))) <= one_bdp)
		enter_probe_bw(sk, bbr);
}

/* ---- PROBE_RTT ---- */

static void leave_probe_rtt(struct sock *sk, struct bbr *bbr)
{
	if (bbr->pipe_is_full)
		enter_probe_bw(sk, bbr);
	else
		bbr->mode = STARTUP;
}

/* draft 4.3.5: 200 ms and a round later the window returns */
static void check_probe_rtt_done(struct sock *sk, struct bbr *bbr)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 now = skyhop_jiffies(sk);

	if (!bbr->probe_rtt_ends_at || !after(now, bbr->probe_rtt_ends_at))
		return;
	bbr->min_rtt_at = now;
	tp->snd_cwnd = max_u32(tp->snd_cwnd, bbr->prior_cwnd);
	leave_probe_rtt(sk, bbr);
}

static void probe_rtt(struct sock *sk, struct bbr *bbr)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 inflight = tcp_packets_in_flight(tp);

	/* so small a window says nothing about the bandwidth */
	tp->app_limited = max_u32(tp->delivered + inflight, 1);
	if (!bbr->probe_rtt_ends_at) {
		if (inflight > MIN_CWND)
			return;
		/* 0 means "not yet", also where the clock wraps */
		bbr->probe_rtt_ends_at =
			max_u32(skyhop_jiffies(sk) + ticks_of_ms(sk, skyhop_param(sk, probe_rtt_time)), 1);
		bbr->probe_rtt_round_done = false;
		bbr->round_end_delivered = tp->delivered;
		return;
	}
	if (bbr->round_starts)
		bbr->probe_rtt_round_done = true;
	if (bbr->probe_rtt_round_done)
		check_probe_rtt_done(sk, bbr);
}

/* draft 4.1.2, 4.3.5: the least RTT of ten seconds; when it is that old, PROBE_RTT */
static void update_min_rtt(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	u32 now = skyhop_jiffies(sk);
	bool has_expired = after(now, bbr->min_rtt_at + ticks_of_ms(sk, skyhop_param(sk, min_rtt_window)));

	if (rs->rtt_us >= 0 &&
	    ((u64)rs->rtt_us < bbr->min_rtt_us || (has_expired && !rs->is_ack_delayed))) {
		bbr->min_rtt_us = (u32)rs->rtt_us;
		bbr->min_rtt_at = now;
	}
	if (has_expired && !bbr->idle_restart && bbr->mode != PROBE_RTT && skyhop_param(sk, probe_rtt_time)) {
		bbr->mode = PROBE_RTT;
		save_cwnd(sk, bbr);
		bbr->probe_rtt_ends_at = 0;
	}
	if (bbr->mode == PROBE_RTT)
		probe_rtt(sk, bbr);
	if (rs->delivered > 0)
		bbr->idle_restart = false;
}

/* ---- At the hooks ---- */

/* draft 4.3: the gains of each state */
static void update_gains(struct sock *sk, struct bbr *bbr)
{
	u32 startup_gain = (u32)skyhop_param(sk, startup_gain);

	switch (bbr->mode) {
	case STARTUP:
		bbr->pacing_gain = startup_gain;
		bbr->cwnd_gain = startup_gain;
		break;
	case DRAIN:
		bbr->pacing_gain = (u32)skyhop_param(sk, drain_gain);
		bbr->cwnd_gain = startup_gain;
		break;
	case PROBE_BW:
		bbr->pacing_gain = bbr->lt_is_used ? GAIN_ONE : gain_of_phase(sk, bbr->phase);
		bbr->cwnd_gain = (u32)skyhop_param(sk, cwnd_gain);
		break;
	default:
		bbr->pacing_gain = GAIN_ONE;
		bbr->cwnd_gain = GAIN_ONE;
	}
}

/* draft 3.5.2 */
static void bbr_on_ack(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	update_bandwidth(sk, bbr, rs);
	update_aggregation(sk, bbr, rs);
	check_cycle_phase(sk, bbr, rs);
	check_full_pipe(sk, bbr, rs);
	check_drain(sk, bbr);
	update_min_rtt(sk, bbr, rs);
	update_gains(sk, bbr);
	set_pacing_rate(sk, bbr, bandwidth(bbr), bbr->pacing_gain);
	set_cwnd(sk, bbr, rs);
}

/* draft 4.3.1 */
static void bbr_start(struct sock *sk, struct bbr *bbr)
{
	struct tcp_sock *tp = tcp_sk(sk);

	*bbr = (struct bbr){ .mode = STARTUP };
	bbr->min_rtt_us = tcp_min_rtt(tp);
	bbr->min_rtt_at = skyhop_jiffies(sk);
	bbr->round_end_delivered = tp->delivered;
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	lt_forget(sk, bbr);
	start_aggregation_epoch(bbr, tp->tcp_mstamp);
	update_gains(sk, bbr);
	pace_by_first_rtt(sk, bbr);
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* draft 4.3.4.4: after idle, at the estimate at once, without a probe */
static void bbr_on_event(struct sock *sk, struct bbr *bbr, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (event != CA_EVENT_TX_START || !tp->app_limited)
		return;
	bbr->idle_restart = true;
	start_aggregation_epoch(bbr, tp->tcp_mstamp);
	if (bbr->mode == PROBE_BW)
		set_pacing_rate(sk, bbr, bandwidth(bbr), GAIN_ONE);
	else if (bbr->mode == PROBE_RTT)
		check_probe_rtt_done(sk, bbr);
}

/* A timeout: what was the full bandwidth may be no more. */
static void bbr_on_state(struct sock *sk, struct bbr *bbr, u8 new_state)
{
	if (new_state != TCP_CA_Loss)
		return;
	bbr->prior_ca_state = TCP_CA_Loss;
	bbr->full_bw = 0;
	bbr->round_starts = true;
	lt_sample(sk, bbr, true, false);
}

/* In ssthresh. BBR has no threshold: the hook tells it that recovery begins. */
static u32 bbr_on_loss(struct sock *sk, struct bbr *bbr)
{
	save_cwnd(sk, bbr);
	return tcp_sk(sk)->snd_ssthresh;
}

/* In undo_cwnd. The loss was none, hence neither the plateau nor the policer that it suggested. */
static u32 bbr_on_undo(struct sock *sk, struct bbr *bbr)
{
	bbr->full_bw = 0;
	bbr->full_bw_rounds = 0;
	lt_forget(sk, bbr);
	return tcp_sk(sk)->snd_cwnd;
}

/* In sndbuf_expand. Linux: what is in flight, the same again for recovery, and one for the next round. */
#define BBR_SNDBUF_WINDOWS 3

#endif
