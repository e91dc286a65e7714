/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * SatPipe ("SatPipe: Deterministic TCP adaptation for highly dynamic LEO satellite networks", INFOCOM 2025, cited as
 * "SatPipe"): BBR that closes its window around a handover, so that no queue builds up at the link while it is down,
 * and then measures the new path at once. Flaws of the published patch are not reproduced: state belongs to the
 * connection, STARTUP is not interrupted, and min_rtt may rise.
 *
 * The interval of a handover is that of SatPipe, III-B: from 15 to 100 ms after its announced time. It is spent in
 * BBR's own PROBE_RTT (IV-F merges the two), whose clock starts at the end of the interval. Both together, about
 * 0.3 s, are the only PROBE_RTT between two handovers 15 s apart: min_rtt lives for 20 s, as in the published patch.
 *
 * The published patch closes the window from 50 ms before the handover for 0.3 s, and never raises min_rtt:
 * `guard_start` = `guard_end` = -50, `probe_rtt_time` = 300, `raise_min_rtt` = 0.
 */
#include "bbr_core.h"

#define SATPIPE_PARAMS(P)                                                                                 \
	BBR_PARAMS(P, 20000)                                                                              \
	P(guard_start, 1, 15, -10000, 10000, "ms", "start of draining after the announced handover; negative: before") \
	P(guard_end, 1, 100, -10000, 10000, "ms", "end of draining after the announced handover; negative: before") \
	P(raise_min_rtt, 1, 1, 0, 1, "", "1: min_rtt becomes that of each probe, also if it rises")       \
	P(lead, 1, 1000, 0, 60000, "ms", "default of lead in [signal]: from announcement to handover")
SKYHOP_PARAMS(SATPIPE_PARAMS);

enum satpipe_step {
	WAITING,  /* plain BBR, possibly with a handover interval ahead */
	DRAINING, /* within the interval: queue maintenance */
	PROBING,  /* after the interval, in PROBE_RTT */
};

struct satpipe {
	struct bbr bbr;
	u64 heard_at_ns; /* time of the handover in the last announcement used */
	u64 begin_ns;    /* start of the next or current handover interval */
	u64 end_ns;      /* end of that interval; 0: there is none */
	u64 step_began_ns;
	u64 drained_us;   /* us: end of the drain */
	u32 fresh_rtt_us; /* minimum RTT of packets sent after the drain; BBR_NO_RTT: none yet */
	u8 step;          /* enum satpipe_step */
};
SKYHOP_STATE(struct satpipe);

/* ---- Announcements ---- */

/* Time `ms` after `at_ns`, or before it if negative, between 0 and the latest time there is. */
static u64 shifted(u64 at_ns, s64 ms)
{
	u64 shift_ns = (u64)(ms < 0 ? -ms : ms) * NSEC_PER_MSEC;

	if (ms < 0)
		return at_ns - min_u64(at_ns, shift_ns);
	return at_ns + shift_ns < at_ns ? ~0ULL : at_ns + shift_ns;
}

/* Set the handover interval from the announcement. While an interval is ahead, a later one has to wait: it is still
 * announced when the first is over. An interval further in the past than the life of an RTT sample does not count;
 * after a more recent one the path has to be measured. */
static void listen(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	u64 recent_ns = skyhop_param(sk, min_rtt_window) * NSEC_PER_MSEC;
	struct skyhop_handover handover;
	u64 begin, end;

	if (satpipe->step != WAITING || !skyhop_handover(sk, &handover) || handover.at_ns == satpipe->heard_at_ns)
		return;
	begin = shifted(handover.at_ns, (s64)skyhop_param(sk, guard_start));
	end = shifted(handover.at_ns, (s64)skyhop_param(sk, guard_end));
	if (satpipe->end_ns && begin >= satpipe->begin_ns)
		return;
	satpipe->heard_at_ns = handover.at_ns;
	if (end + recent_ns < now)
		return;
	satpipe->begin_ns = begin;
	satpipe->end_ns = end;
}

/* ---- The two states in addition to BBR's ---- */

static void start_drain(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	struct bbr *bbr = &satpipe->bbr;

	bbr_save_cwnd(sk, bbr);
	bbr->mode = BBR_PROBE_RTT;
	bbr->probe_rtt_ends_at = 0;
	satpipe->step = DRAINING;
	satpipe->step_began_ns = now;
}

/* Begin the probe; also called if no ACK arrived during the interval, so that the drain is noticed only now. */
static void start_probe(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	if (now > satpipe->step_began_ns)
		skyhop_tell(sk, SKYHOP_DRAIN, satpipe->step_began_ns, now);
	satpipe->step = PROBING;
	satpipe->step_began_ns = now;
	satpipe->end_ns = 0;
	satpipe->drained_us = tcp_sk(sk)->tcp_mstamp;
	satpipe->fresh_rtt_us = BBR_NO_RTT;
}

static void follow_window(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	if (satpipe->step == WAITING && satpipe->end_ns && now >= satpipe->begin_ns) {
		if (satpipe->bbr.pipe_is_full)
			start_drain(sk, satpipe, now);
		else if (now >= satpipe->end_ns)
			satpipe->end_ns = 0;
	}
	if (satpipe->step == DRAINING && now >= satpipe->end_ns)
		start_probe(sk, satpipe, now);
}

/* End the probe when PROBE_RTT is over: the RTT measured in it becomes the path's, unless it rose and may not. */
static void finish_probe(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	if (satpipe->step != PROBING || satpipe->bbr.mode == BBR_PROBE_RTT)
		return;
	if (satpipe->fresh_rtt_us != BBR_NO_RTT && skyhop_param(sk, raise_min_rtt))
		satpipe->bbr.min_rtt_us = satpipe->fresh_rtt_us;
	skyhop_tell(sk, SKYHOP_PROBE_RTT, satpipe->step_began_ns, now);
	satpipe->step = WAITING;
}

/* Use only packets sent after the drain, which have crossed nothing but the new path. */
static void take_fresh_rtt(struct sock *sk, struct satpipe *satpipe, const struct rate_sample *rs)
{
	u64 sent_us;

	if (rs->rtt_us < 0 || rs->is_ack_delayed)
		return;
	sent_us = bbr_us_since((u64)rs->rtt_us, tcp_sk(sk)->tcp_mstamp);
	if (sent_us >= satpipe->drained_us)
		satpipe->fresh_rtt_us = min_u32(satpipe->fresh_rtt_us, (u32)rs->rtt_us);
}

/* BBR forgets a bandwidth after ten rounds. Rounds with a closed window do not count; otherwise each handover would
 * leave the estimate to the first samples after it. So the times in the filter advance with these rounds. */
static void keep_bandwidth(struct bbr *bbr, u32 rounds_before)
{
	struct minmax_filter *max = &bbr->max_bw;

	if (bbr->rounds == rounds_before)
		return;
	max->best.t += before(max->best.t, bbr->rounds);
	max->second.t += before(max->second.t, bbr->rounds);
	max->third.t += before(max->third.t, bbr->rounds);
}

static void stay_closed(struct sock *sk, struct satpipe *satpipe, const struct rate_sample *rs, u32 rounds_before)
{
	keep_bandwidth(&satpipe->bbr, rounds_before);
	if (satpipe->step == DRAINING)
		satpipe->bbr.probe_rtt_ends_at = 0;
	else
		take_fresh_rtt(sk, satpipe, rs);
}

/* ---- The hooks ---- */

SKYHOP_HOOK(void, satpipe_init, struct sock *sk)
{
	struct satpipe *satpipe = skyhop_state_create(sk);

	if (!satpipe)
		return;
	satpipe->heard_at_ns = 0;
	satpipe->end_ns = 0;
	satpipe->step = WAITING;
	bbr_start(sk, &satpipe->bbr, &BBR_CONFIG);
}

SKYHOP_HOOK(void, satpipe_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct satpipe *satpipe = skyhop_state(sk);
	u64 now = skyhop_now_ns(sk);
	u32 rounds_before;

	(void)ack;
	(void)flag;
	if (!satpipe)
		return;
	rounds_before = satpipe->bbr.rounds;
	listen(sk, satpipe, now);
	follow_window(sk, satpipe, now);
	bbr_on_ack(sk, &satpipe->bbr, rs);
	if (satpipe->step != WAITING)
		stay_closed(sk, satpipe, rs, rounds_before);
	finish_probe(sk, satpipe, now);
}

/* A transmission after idle may end PROBE_RTT. */
SKYHOP_HOOK(void, satpipe_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct satpipe *satpipe = skyhop_state(sk);

	if (!satpipe)
		return;
	bbr_on_event(sk, &satpipe->bbr, event);
	finish_probe(sk, satpipe, skyhop_now_ns(sk));
}

SKYHOP_HOOK(void, satpipe_set_state, struct sock *sk, u8 new_state)
{
	struct satpipe *satpipe = skyhop_state(sk);

	if (satpipe)
		bbr_on_state(sk, &satpipe->bbr, new_state);
}

SKYHOP_HOOK(u32, satpipe_ssthresh, struct sock *sk)
{
	struct satpipe *satpipe = skyhop_state(sk);

	return satpipe ? bbr_on_loss(sk, &satpipe->bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, satpipe_undo_cwnd, struct sock *sk)
{
	struct satpipe *satpipe = skyhop_state(sk);

	return satpipe ? bbr_on_undo(sk, &satpipe->bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_HOOK(u32, satpipe_min_tso_segs, struct sock *sk)
{
	return bbr_least_burst(sk);
}

SKYHOP_HOOK(u32, satpipe_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return BBR_SNDBUF_WINDOWS;
}

SKYHOP_MODULE(satpipe, "SatPipe: BBR that drains before an announced handover, and measures after it",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(satpipe_init),
	      .ssthresh = SKYHOP_FN(satpipe_ssthresh),
	      .cong_control = SKYHOP_FN(satpipe_cong_control),
	      .set_state = SKYHOP_FN(satpipe_set_state),
	      .cwnd_event = SKYHOP_FN(satpipe_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(satpipe_undo_cwnd),
	      .min_tso_segs = SKYHOP_FN(satpipe_min_tso_segs),
	      .sndbuf_expand = SKYHOP_FN(satpipe_sndbuf_expand));
