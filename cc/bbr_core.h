/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00, cited as "draft") with Linux's additions: a
 * long-term bandwidth against policers, an allowance for aggregated ACKs, a pacing margin, and packets counted at
 * their departure time. For the modules built on it.
 *
 * Bandwidths and gains have the units of pacing.h.
 *
 * A module's state contains a `struct bbr`, its hooks call the functions under "At the hooks", its parameter table
 * includes BBR_PARAMS(P, min_rtt_window) with the module's default of that parameter, and its init hook passes their
 * values: bbr_start(sk, bbr, &BBR_CONFIG).
 */
#ifndef SKYHOP_BBR_CORE_H
#define SKYHOP_BBR_CORE_H

#include "minmax.h"
#include "pacing.h"

#define BBR_CYCLE_PHASES 8
#define BBR_MIN_CWND 4
#define BBR_SMALL_BURST_RATE (1200000 / 8) /* bytes per second */
#define BBR_NO_RTT (~0U)

/* Linux's long-term sampling (policers) */
#define BBR_LT_MIN_ROUNDS 4
#define BBR_LT_MAX_ROUNDS (4 * BBR_LT_MIN_ROUNDS)
#define BBR_LT_LOST_OF_256 50
#define BBR_LT_NEAR_BYTES_PER_SEC (4000 / 8)
#define BBR_LT_USE_ROUNDS 48

/* Linux's ACK aggregation */
#define BBR_AGGREGATION_ROUNDS 5
#define BBR_AGGREGATION_MAX_US (100 * USEC_PER_MSEC)
#define BBR_AGGREGATION_MAX_ACKED ((1 << 20) - 1)

#define BBR_PARAMS(P, rtt_window)                                                                         \
	P(startup_gain, PACING_GAIN_ONE, 739, 257, 2560, "", "pacing and cwnd gain of STARTUP: 2/ln 2")   \
	P(drain_gain, PACING_GAIN_ONE, 88, 1, 255, "", "pacing gain of DRAIN")                            \
	P(cwnd_gain, PACING_GAIN_ONE, 512, 256, 2560, "", "cwnd in BDPs in PROBE_BW")                     \
	P(probe_gain, PACING_GAIN_ONE, 320, 257, 511, "", "pacing gain of the cycle's first phase")      \
	P(bw_window, 1, 10, 1, 1000, "rounds", "lifetime of a bandwidth sample")                         \
	P(min_rtt_window, 1, rtt_window, 100, 1000000, "ms", "lifetime of an RTT sample")                     \
	P(probe_rtt_time, 1, 200, 0, 10000, "ms", "minimum duration of PROBE_RTT; 0: no PROBE_RTT")      \
	P(full_bw_growth, PACING_GAIN_ONE, 320, 257, 1024, "", "STARTUP goes on while bandwidth grows by this factor per round") \
	P(full_bw_rounds, 1, 3, 1, 100, "rounds", "rounds without that growth that end STARTUP")         \
	P(pacing_margin, 1, 1, 0, 50, "percent", "pacing rate below the bandwidth estimate, in per cent") \
	P(extra_acked_gain, PACING_GAIN_ONE, 256, 0, 1024, "", "cwnd for aggregated ACKs; 0: none")       \
	P(long_term, 1, 1, 0, 1, "", "1: detect policers (long-term bandwidth sampling)")

struct bbr_config {
	BBR_PARAMS(SKYHOP_CONFIG_MEMBER, 0)
};
#define BBR_CONFIG ((struct bbr_config){ BBR_PARAMS(SKYHOP_CONFIG_VALUE, 0) })

enum bbr_mode {
	BBR_STARTUP,   /* raise the rate until the pipe is full */
	BBR_DRAIN,     /* empty the queue that STARTUP built up */
	BBR_PROBE_BW,  /* cruise, and look for more bandwidth once per cycle */
	BBR_PROBE_RTT, /* shrink the window briefly, to measure the path without the flow's own queue */
};

struct bbr {
	struct bbr_config config;
	struct minmax_filter max_bw; /* window in rounds */
	u64 cycle_start_us;
	u64 aggregation_start_us;
	u32 min_rtt_us; /* BBR_NO_RTT: no sample yet */
	u32 min_rtt_at; /* jiffies */
	u32 probe_rtt_ends_at; /* jiffies; 0: in flight is still above the minimum window */
	u32 rounds;
	u32 round_end_delivered;
	u32 pacing_gain;
	u32 cwnd_gain;
	u32 prior_cwnd; /* last good window before recovery or PROBE_RTT */
	u32 full_bw;
	u32 full_bw_rounds;
	u32 lt_bw; /* 0: no interval is complete */
	u32 lt_start_ms;
	u32 lt_start_delivered;
	u32 lt_start_lost;
	u32 lt_rounds;
	u32 aggregation_acked;
	u32 aggregation_rounds;
	u32 extra_acked[2]; /* maxima of the last two windows */
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

static inline u32 bbr_max_bw(const struct bbr *bbr)
{
	return bbr->max_bw.best.v;
}

static inline u32 bbr_bandwidth(const struct bbr *bbr)
{
	return bbr->lt_is_used ? bbr->lt_bw : bbr_max_bw(bbr);
}

static inline u64 bbr_us_since(u64 then, u64 now)
{
	return now > then ? now - then : 0;
}

static inline u32 bbr_ticks_of_ms(struct sock *sk, u64 ms)
{
	return (u32)((ms * skyhop_hz(sk) + 999) / 1000);
}

/* ---- Pacing rate and bursts ---- */

/* Linux: a little under the estimate, so that no queue persists */
static inline u64 bbr_bytes_per_sec(struct sock *sk, const struct bbr *bbr, u64 bw, u32 gain)
{
	return pacing_bytes_per_sec(sk, bw, gain, bbr->config.pacing_margin);
}

/* draft 4.2.1: before the first bandwidth sample, one window per RTT, or per 1 ms without an RTT */
static inline void bbr_pace_by_first_rtt(struct sock *sk, struct bbr *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 rtt_us = USEC_PER_MSEC;

	if (tp->srtt_us) {
		rtt_us = max_u32(tp->srtt_us >> 3, 1);
		bbr->has_seen_rtt = true;
	}
	pacing_set_rate(sk, bbr_bytes_per_sec(sk, bbr, tp->snd_cwnd * PACING_BW_ONE / rtt_us,
					      (u32)bbr->config.startup_gain));
}

/* draft 4.2.1: until the pipe is full the rate only rises */
static inline void bbr_set_pacing_rate(struct sock *sk, struct bbr *bbr, u32 bw, u32 gain)
{
	u64 rate = min_u64(bbr_bytes_per_sec(sk, bbr, bw, gain), sk->sk_max_pacing_rate);

	if (!bbr->has_seen_rtt && tcp_sk(sk)->srtt_us)
		bbr_pace_by_first_rtt(sk, bbr);
	if (bbr->pipe_is_full || rate > sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate;
}

/* draft 4.2.2: one packet per burst below 1.2 Mbit/s, two above */
static inline u32 bbr_least_burst(struct sock *sk)
{
	return sk->sk_pacing_rate < BBR_SMALL_BURST_RATE ? 1 : 2;
}

static inline u32 bbr_burst_goal(struct sock *sk)
{
	return pacing_burst_segments(sk, bbr_least_burst(sk));
}

/* ---- Windows ---- */

/* draft 4.2.3.2: gain times the bandwidth-delay product, rounded up */
static inline u32 bbr_bdp(const struct bbr *bbr, u32 bw, u32 gain)
{
	u64 product = (u64)bw * bbr->min_rtt_us;

	if (bbr->min_rtt_us == BBR_NO_RTT)
		return TCP_INIT_CWND;
	return (u32)(((product * gain >> PACING_GAIN_SHIFT) + PACING_BW_ONE - 1) / PACING_BW_ONE);
}

/* draft 4.2.3.2: adds three bursts: in the sender, in the receiver, on the path. Linux: an even number, for
 * receivers that acknowledge every other packet; two more when probing, so that small windows probe too. */
static inline u32 bbr_with_burst_allowance(struct sock *sk, const struct bbr *bbr, u32 cwnd)
{
	cwnd += 3 * bbr_burst_goal(sk);
	cwnd = (cwnd + 1) & ~1U;
	if (bbr->mode == BBR_PROBE_BW && bbr->phase == 0)
		cwnd += 2;
	return cwnd;
}

static inline u32 bbr_inflight_for(struct sock *sk, const struct bbr *bbr, u32 bw, u32 gain)
{
	return bbr_with_burst_allowance(sk, bbr, bbr_bdp(bbr, bw, gain));
}

/* Linux: packets in the network when pacing releases the next packet */
static inline u32 bbr_inflight_at_departure(struct sock *sk, const struct bbr *bbr, u32 inflight_now)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 wait_us = bbr_us_since(tp->tcp_clock_cache, tp->tcp_wstamp_ns) / NSEC_PER_USEC;
	u32 delivered = (u32)(bbr_bandwidth(bbr) * wait_us >> PACING_BW_SHIFT);
	u32 inflight = inflight_now;

	if (bbr->pacing_gain > PACING_GAIN_ONE)
		inflight += bbr_burst_goal(sk);
	return delivered >= inflight ? 0 : inflight - delivered;
}

/* Linux: allowance for recently aggregated ACKs, at most 100 ms at the bandwidth */
static inline u32 bbr_aggregation_cwnd(const struct bbr *bbr)
{
	u32 most;
	u64 extra;

	if (!bbr->pipe_is_full)
		return 0;
	most = (u32)(bbr_bandwidth(bbr) * BBR_AGGREGATION_MAX_US / PACING_BW_ONE);
	extra = max_u32(bbr->extra_acked[0], bbr->extra_acked[1]);
	return (u32)min_u64(bbr->config.extra_acked_gain * extra >> PACING_GAIN_SHIFT, most);
}

/* draft 4.2.3.4: BBRSaveCwnd */
static inline void bbr_save_cwnd(struct sock *sk, struct bbr *bbr)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	if (bbr->prior_ca_state < TCP_CA_Recovery && bbr->mode != BBR_PROBE_RTT)
		bbr->prior_cwnd = cwnd;
	else
		bbr->prior_cwnd = max_u32(bbr->prior_cwnd, cwnd);
}

/* draft 4.2.3.4: in the first round of recovery one packet leaves for each one delivered; at its end the earlier
 * window is restored. */
static inline u32 bbr_cwnd_of_recovery(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs, u32 acked)
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

/* draft 4.2.3.6: grows by the packets delivered, shrinks at once, never below four packets */
static inline u32 bbr_cwnd_towards_target(struct sock *sk, const struct bbr *bbr, u32 bw, u32 cwnd, u32 acked)
{
	u32 wanted = bbr_bdp(bbr, bw, bbr->cwnd_gain) + bbr_aggregation_cwnd(bbr);
	u32 target = bbr_with_burst_allowance(sk, bbr, wanted);

	if (bbr->pipe_is_full)
		cwnd = min_u32(cwnd + acked, target);
	else if (cwnd < target || tcp_sk(sk)->delivered < TCP_INIT_CWND)
		cwnd += acked;
	return max_u32(cwnd, BBR_MIN_CWND);
}

/* Set the window for a bandwidth, with at most `probe_rtt_cwnd` in PROBE_RTT. */
static inline void bbr_set_cwnd_for(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs, u32 bw,
				    u32 probe_rtt_cwnd)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 acked = rs->acked_sacked;
	u32 cwnd = tp->snd_cwnd;

	if (acked) {
		cwnd = bbr_cwnd_of_recovery(sk, bbr, rs, acked);
		if (!bbr->packet_conservation)
			cwnd = bbr_cwnd_towards_target(sk, bbr, bw, cwnd, acked);
	}
	cwnd = min_u32(cwnd, tp->snd_cwnd_clamp);
	/* draft 4.2.3.5 */
	if (bbr->mode == BBR_PROBE_RTT)
		cwnd = min_u32(cwnd, probe_rtt_cwnd);
	tp->snd_cwnd = cwnd;
}

static inline void bbr_set_cwnd(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	bbr_set_cwnd_for(sk, bbr, rs, bbr_bandwidth(bbr), BBR_MIN_CWND);
}

/* ---- The cycle of PROBE_BW ---- */

/* draft 4.3.4.1: gains of the cycle: up, down, and six phases at the estimate */
static inline u32 bbr_gain_of_phase(const struct bbr *bbr)
{
	u32 up = (u32)bbr->config.probe_gain;

	switch (bbr->phase) {
	case 0:
		return up;
	case 1:
		return 2 * PACING_GAIN_ONE - up;
	default:
		return PACING_GAIN_ONE;
	}
}

static inline void bbr_next_phase(struct sock *sk, struct bbr *bbr)
{
	bbr->phase = (bbr->phase + 1) & (BBR_CYCLE_PHASES - 1);
	bbr->cycle_start_us = tcp_sk(sk)->delivered_mstamp;
}

/* draft 4.3.4.2: flows start in random phases, but none in the one that drains the queue */
static inline void bbr_enter_probe_bw(struct sock *sk, struct bbr *bbr)
{
	bbr->mode = BBR_PROBE_BW;
	bbr->phase = BBR_CYCLE_PHASES - 1 - skyhop_random(sk, BBR_CYCLE_PHASES - 1);
	bbr_next_phase(sk, bbr);
}

/* draft 4.3.4.3: a phase lasts one min_rtt; the first until the queue has built up or loss shows that it cannot, the
 * second only until the queue is gone. */
static inline bool bbr_phase_is_over(struct sock *sk, const struct bbr *bbr, const struct rate_sample *rs)
{
	bool is_full_length = bbr_us_since(bbr->cycle_start_us, tcp_sk(sk)->delivered_mstamp) > bbr->min_rtt_us;
	u32 inflight;

	if (bbr->pacing_gain == PACING_GAIN_ONE)
		return is_full_length;
	inflight = bbr_inflight_at_departure(sk, bbr, rs->prior_in_flight);
	if (bbr->pacing_gain > PACING_GAIN_ONE)
		return is_full_length &&
		       (rs->losses > 0 || inflight >= bbr_inflight_for(sk, bbr, bbr_max_bw(bbr), bbr->pacing_gain));
	return is_full_length || inflight <= bbr_inflight_for(sk, bbr, bbr_max_bw(bbr), PACING_GAIN_ONE);
}

static inline void bbr_check_cycle_phase(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	if (bbr->mode == BBR_PROBE_BW && bbr_phase_is_over(sk, bbr, rs))
		bbr_next_phase(sk, bbr);
}

/* ---- Long-term bandwidth: Linux's detection of policers (not in draft-01; Flach et al., 2016) ---- */

static inline void bbr_lt_start_interval(struct sock *sk, struct bbr *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	bbr->lt_start_ms = (u32)(tp->delivered_mstamp / USEC_PER_MSEC);
	bbr->lt_start_delivered = tp->delivered;
	bbr->lt_start_lost = tp->lost;
	bbr->lt_rounds = 0;
}

static inline void bbr_lt_forget(struct sock *sk, struct bbr *bbr)
{
	bbr->lt_bw = 0;
	bbr->lt_is_used = false;
	bbr->lt_is_sampling = false;
	bbr_lt_start_interval(sk, bbr);
}

/* Detect a policer: two consecutive intervals with much loss and the same rate (within an eighth or 4 kbit/s). */
static inline void bbr_lt_interval_is_done(struct sock *sk, struct bbr *bbr, u32 bw)
{
	u32 gap = max_u32(bw, bbr->lt_bw) - min_u32(bw, bbr->lt_bw);

	if (bbr->lt_bw &&
	    (gap <= bbr->lt_bw / 8 || bbr_bytes_per_sec(sk, bbr, gap, PACING_GAIN_ONE) <= BBR_LT_NEAR_BYTES_PER_SEC)) {
		bbr->lt_bw = (u32)(((u64)bw + bbr->lt_bw) / 2);
		bbr->lt_is_used = true;
		bbr->pacing_gain = PACING_GAIN_ONE;
		bbr->lt_rounds = 0;
		return;
	}
	bbr->lt_bw = bw;
	bbr_lt_start_interval(sk, bbr);
}

/* Measure an interval that begins and ends with a loss, lasts 4 to 16 rounds and loses at least a fifth. */
static inline void bbr_lt_measure(struct sock *sk, struct bbr *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 lost = tp->lost - bbr->lt_start_lost;
	u64 delivered = tp->delivered - bbr->lt_start_delivered;
	s32 ms = (s32)((u32)(tp->delivered_mstamp / USEC_PER_MSEC) - bbr->lt_start_ms);

	if (!delivered || lost * 256 < BBR_LT_LOST_OF_256 * delivered || ms < 1)
		return;
	bbr_lt_interval_is_done(sk, bbr, (u32)(delivered * PACING_BW_ONE / ((u64)ms * USEC_PER_MSEC)));
}

/* Use the policed rate for 48 rounds of PROBE_BW, then probe the path again. */
static inline void bbr_lt_use(struct sock *sk, struct bbr *bbr)
{
	if (bbr->mode != BBR_PROBE_BW || !bbr->round_starts)
		return;
	if (++bbr->lt_rounds >= BBR_LT_USE_ROUNDS) {
		bbr_lt_forget(sk, bbr);
		bbr_enter_probe_bw(sk, bbr);
	}
}

static inline void bbr_lt_sample(struct sock *sk, struct bbr *bbr, bool has_losses, bool is_app_limited)
{
	if (!bbr->config.long_term)
		return;
	if (bbr->lt_is_used) {
		bbr_lt_use(sk, bbr);
		return;
	}
	if (!bbr->lt_is_sampling) {
		if (!has_losses)
			return;
		bbr_lt_start_interval(sk, bbr);
		bbr->lt_is_sampling = true;
	}
	bbr->lt_rounds += bbr->round_starts;
	if (is_app_limited || bbr->lt_rounds > BBR_LT_MAX_ROUNDS)
		bbr_lt_forget(sk, bbr);
	else if (has_losses && bbr->lt_rounds >= BBR_LT_MIN_ROUNDS)
		bbr_lt_measure(sk, bbr);
}

/* ---- The model ---- */

/* draft 4.1.1.3: a round ends when a packet is acknowledged that was sent after its start */
static inline void bbr_count_rounds(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	bbr->round_starts = false;
	if (rs->interval_us <= 0 || rs->delivered < 0 || before(rs->prior_delivered, bbr->round_end_delivered))
		return;
	bbr->round_end_delivered = tcp_sk(sk)->delivered;
	bbr->rounds++;
	bbr->round_starts = true;
	bbr->packet_conservation = false;
}

/* draft 4.1.1: largest delivery rate of ten rounds; an application-limited sample counts only if it is larger */
static inline void bbr_update_bandwidth(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	u64 bw;

	bbr_count_rounds(sk, bbr, rs);
	if (rs->delivered < 0 || rs->interval_us <= 0)
		return;
	bbr_lt_sample(sk, bbr, rs->losses > 0, rs->is_app_limited);
	bw = (u64)rs->delivered * PACING_BW_ONE / (u64)rs->interval_us;
	if (!rs->is_app_limited || bw >= bbr_max_bw(bbr))
		minmax_running_max(&bbr->max_bw, (u32)bbr->config.bw_window, bbr->rounds, (u32)bw);
}

static inline void bbr_start_aggregation_epoch(struct bbr *bbr, u64 now_us)
{
	bbr->aggregation_start_us = now_us;
	bbr->aggregation_acked = 0;
}

/* Linux: the largest excess of ACKs over what the bandwidth explains, in the last five to ten rounds */
static inline void bbr_update_aggregation(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 expected, extra, *slot;

	if (!bbr->config.extra_acked_gain || !rs->acked_sacked || rs->delivered < 0 || rs->interval_us <= 0)
		return;
	if (bbr->round_starts && ++bbr->aggregation_rounds >= BBR_AGGREGATION_ROUNDS) {
		bbr->aggregation_rounds = 0;
		bbr->extra_acked_now = !bbr->extra_acked_now;
		bbr->extra_acked[bbr->extra_acked_now & 1] = 0;
	}
	expected = (u32)(bbr_bandwidth(bbr) * bbr_us_since(bbr->aggregation_start_us, tp->delivered_mstamp) / PACING_BW_ONE);
	if (bbr->aggregation_acked <= expected ||
	    bbr->aggregation_acked + rs->acked_sacked > BBR_AGGREGATION_MAX_ACKED) {
		bbr_start_aggregation_epoch(bbr, tp->delivered_mstamp);
		expected = 0;
	}
	bbr->aggregation_acked = min_u32(bbr->aggregation_acked + rs->acked_sacked, BBR_AGGREGATION_MAX_ACKED);
	extra = min_u32(bbr->aggregation_acked - expected, tp->snd_cwnd);
	slot = &bbr->extra_acked[bbr->extra_acked_now & 1];
	*slot = max_u32(*slot, extra);
}

/* draft 4.3.2.2: the pipe is full after three rounds in which the bandwidth grew by less than a quarter */
static inline void bbr_check_full_pipe(struct bbr *bbr, const struct rate_sample *rs)
{
	u64 enough = bbr->full_bw * bbr->config.full_bw_growth >> PACING_GAIN_SHIFT;

	if (bbr->pipe_is_full || !bbr->round_starts || rs->is_app_limited)
		return;
	if (bbr_max_bw(bbr) >= enough) {
		bbr->full_bw = bbr_max_bw(bbr);
		bbr->full_bw_rounds = 0;
		return;
	}
	bbr->pipe_is_full = ++bbr->full_bw_rounds >= bbr->config.full_bw_rounds;
}

/* draft 4.3.3: drains until one BDP is in flight */
static inline void bbr_check_drain(struct sock *sk, struct bbr *bbr)
{
	u32 one_bdp;

	if (bbr->mode != BBR_DRAIN && !(bbr->mode == BBR_STARTUP && bbr->pipe_is_full))
		return;
	one_bdp = bbr_inflight_for(sk, bbr, bbr_max_bw(bbr), PACING_GAIN_ONE);
	if (bbr->mode == BBR_STARTUP) {
		bbr->mode = BBR_DRAIN;
		tcp_sk(sk)->snd_ssthresh = one_bdp;
	}
	if (bbr_inflight_at_departure(sk, bbr, tcp_packets_in_flight(tcp_sk(sk))) <= one_bdp)
		bbr_enter_probe_bw(sk, bbr);
}

/* ---- PROBE_RTT ---- */

static inline void bbr_leave_probe_rtt(struct sock *sk, struct bbr *bbr)
{
	if (bbr->pipe_is_full)
		bbr_enter_probe_bw(sk, bbr);
	else
		bbr->mode = BBR_STARTUP;
}

/* draft 4.3.5: restores the window after 200 ms and one round */
static inline void bbr_check_probe_rtt_done(struct sock *sk, struct bbr *bbr)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 now = skyhop_jiffies(sk);

	if (!bbr->probe_rtt_ends_at || !after(now, bbr->probe_rtt_ends_at))
		return;
	bbr->min_rtt_at = now;
	tp->snd_cwnd = max_u32(tp->snd_cwnd, bbr->prior_cwnd);
	bbr_leave_probe_rtt(sk, bbr);
}

static inline void bbr_probe_rtt(struct sock *sk, struct bbr *bbr)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 inflight = tcp_packets_in_flight(tp);

	/* such a small window does not measure the bandwidth */
	tp->app_limited = max_u32(tp->delivered + inflight, 1);
	if (!bbr->probe_rtt_ends_at) {
		if (inflight > BBR_MIN_CWND)
			return;
		/* 0 means "not set", so the value must not be 0 when the clock wraps */
		bbr->probe_rtt_ends_at =
			max_u32(skyhop_jiffies(sk) + bbr_ticks_of_ms(sk, bbr->config.probe_rtt_time), 1);
		bbr->probe_rtt_round_done = false;
		bbr->round_end_delivered = tp->delivered;
		return;
	}
	if (bbr->round_starts)
		bbr->probe_rtt_round_done = true;
	if (bbr->probe_rtt_round_done)
		bbr_check_probe_rtt_done(sk, bbr);
}

/* draft 4.1.2, 4.3.5: minimum RTT of ten seconds; PROBE_RTT begins when it expires */
static inline void bbr_update_min_rtt(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	u32 now = skyhop_jiffies(sk);
	bool has_expired = after(now, bbr->min_rtt_at + bbr_ticks_of_ms(sk, bbr->config.min_rtt_window));

	if (rs->rtt_us >= 0 &&
	    ((u64)rs->rtt_us < bbr->min_rtt_us || (has_expired && !rs->is_ack_delayed))) {
		bbr->min_rtt_us = (u32)rs->rtt_us;
		bbr->min_rtt_at = now;
	}
	if (has_expired && !bbr->idle_restart && bbr->mode != BBR_PROBE_RTT && bbr->config.probe_rtt_time) {
		bbr->mode = BBR_PROBE_RTT;
		bbr_save_cwnd(sk, bbr);
		bbr->probe_rtt_ends_at = 0;
	}
	if (bbr->mode == BBR_PROBE_RTT)
		bbr_probe_rtt(sk, bbr);
	if (rs->delivered > 0)
		bbr->idle_restart = false;
}

/* ---- At the hooks ---- */

/* draft 4.3: the gains of each state */
static inline void bbr_update_gains(struct bbr *bbr)
{
	u32 startup_gain = (u32)bbr->config.startup_gain;

	switch (bbr->mode) {
	case BBR_STARTUP:
		bbr->pacing_gain = startup_gain;
		bbr->cwnd_gain = startup_gain;
		break;
	case BBR_DRAIN:
		bbr->pacing_gain = (u32)bbr->config.drain_gain;
		bbr->cwnd_gain = startup_gain;
		break;
	case BBR_PROBE_BW:
		bbr->pacing_gain = bbr->lt_is_used ? PACING_GAIN_ONE : bbr_gain_of_phase(bbr);
		bbr->cwnd_gain = (u32)bbr->config.cwnd_gain;
		break;
	default:
		bbr->pacing_gain = PACING_GAIN_ONE;
		bbr->cwnd_gain = PACING_GAIN_ONE;
	}
}

/* draft 3.5.2: update of model and state on each ACK */
static inline void bbr_on_ack(struct sock *sk, struct bbr *bbr, const struct rate_sample *rs)
{
	bbr_update_bandwidth(sk, bbr, rs);
	bbr_update_aggregation(sk, bbr, rs);
	bbr_check_cycle_phase(sk, bbr, rs);
	bbr_check_full_pipe(bbr, rs);
	bbr_check_drain(sk, bbr);
	bbr_update_min_rtt(sk, bbr, rs);
	bbr_update_gains(bbr);
	bbr_set_pacing_rate(sk, bbr, bbr_bandwidth(bbr), bbr->pacing_gain);
	bbr_set_cwnd(sk, bbr, rs);
}

/* draft 4.3.1: initial state */
static inline void bbr_start(struct sock *sk, struct bbr *bbr, const struct bbr_config *config)
{
	struct tcp_sock *tp = tcp_sk(sk);

	*bbr = (struct bbr){ .config = *config, .mode = BBR_STARTUP };
	bbr->min_rtt_us = tcp_min_rtt(tp);
	bbr->min_rtt_at = skyhop_jiffies(sk);
	bbr->round_end_delivered = tp->delivered;
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	bbr_lt_forget(sk, bbr);
	bbr_start_aggregation_epoch(bbr, tp->tcp_mstamp);
	bbr_update_gains(bbr);
	bbr_pace_by_first_rtt(sk, bbr);
	pacing_request(sk);
}

/* draft 4.3.4.4: after idle, pace at the estimate at once, without a probe */
static inline void bbr_on_event(struct sock *sk, struct bbr *bbr, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (event != CA_EVENT_TX_START || !tp->app_limited)
		return;
	bbr->idle_restart = true;
	bbr_start_aggregation_epoch(bbr, tp->tcp_mstamp);
	if (bbr->mode == BBR_PROBE_BW)
		bbr_set_pacing_rate(sk, bbr, bbr_bandwidth(bbr), PACING_GAIN_ONE);
	else if (bbr->mode == BBR_PROBE_RTT)
		bbr_check_probe_rtt_done(sk, bbr);
}

/* After a timeout the path may no longer have the full bandwidth found so far. */
static inline void bbr_on_state(struct sock *sk, struct bbr *bbr, u8 new_state)
{
	if (new_state != TCP_CA_Loss)
		return;
	bbr->prior_ca_state = TCP_CA_Loss;
	bbr->full_bw = 0;
	bbr->round_starts = true;
	bbr_lt_sample(sk, bbr, true, false);
}

/* Called in ssthresh. BBR has no threshold: the hook signals that recovery begins. */
static inline u32 bbr_on_loss(struct sock *sk, struct bbr *bbr)
{
	bbr_save_cwnd(sk, bbr);
	return tcp_sk(sk)->snd_ssthresh;
}

/* Called in undo_cwnd. The loss was spurious, and so were the plateau and the policer that it suggested. */
static inline u32 bbr_on_undo(struct sock *sk, struct bbr *bbr)
{
	bbr->full_bw = 0;
	bbr->full_bw_rounds = 0;
	bbr_lt_forget(sk, bbr);
	return tcp_sk(sk)->snd_cwnd;
}

/* Result of sndbuf_expand, as in Linux: one window in flight, one for recovery, and one for the next round. */
#define BBR_SNDBUF_WINDOWS 3

#endif
