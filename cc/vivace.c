/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * PCC Vivace (Dong et al., "PCC Vivace: Online-learning congestion control", NSDI 2018, cited as "Vivace") as in its
 * authors' module for Linux, which differs from the paper: utility is linear in the rate, the gradient's step is in
 * bytes per second, and the window is twice what the rate needs.
 *
 * Time is divided into monitor intervals, each sent at one rate; the ACKs of an interval give the utility of its
 * rate. From the start the rate grows by half per interval until utility falls (START). Then four intervals, two at
 * 5 % more and two at 5 % less, in random order, are compared: if both pairs agree (PROBING), the rate follows the
 * gradient (MOVING) for as long as it rises, and is probed again afterwards.
 *
 * Where the module differs from its description, its behaviour is kept: the first interval of MOVING is sent at the
 * rate before the probes but evaluated as if sent at the better probe's, so that MOVING begins with the smallest
 * step, upwards; and any step down ends MOVING.
 */
#include "pacing.h"
#include "pcc_math.h"

#define VIVACE_ONE 1000
#define VIVACE_PARAMS(P)                                                                                  \
	P(throughput, VIVACE_ONE, 1000, 0, 1000000, "", "utility: coefficient of the throughput term")   \
	P(exponent, VIVACE_ONE, 1000, 100, 1000, "", "utility: exponent of the rate in Mbit/s; 1: linear") \
	P(latency, VIVACE_ONE, 900000, 0, 2000000, "", "utility: coefficient of the RTT gradient")       \
	P(loss, VIVACE_ONE, 11000, 0, 1000000, "", "utility: coefficient of the loss rate")              \
	P(initial_window, 1, 0, 0, 1000, "packets", "initial rate, in packets per RTT; 0: 524,288 bytes/s")
SKYHOP_PARAMS(VIVACE_PARAMS);

#define INTERVALS 4 /* a power of two */
#define LEAST_PACKETS 50
#define MARGIN_PACKETS 10 /* packets at either end of an interval, which may belong to its neighbours */
#define LEAST_CWND 4
#define LEAST_RATE 1024 /* bytes per second, as all rates */
#define LEAST_PACKETS_PER_RTT 2
#define FIRST_RATE (512 * LEAST_RATE)
#define MOST_RATE (1ULL << 34)
#define PROBE_PERCENT 5
#define START_LOSS 100         /* in 1 / VIVACE_ONE: smaller losses do not count in START */
#define LEAST_SLOPE 30         /* in 1 / VIVACE_ONE: 3 % */
#define MOST_SLOPE 100000      /* keeps products within 64 bits */
#define MOST_UTILITY 4000000000000LL
#define LEAST_STEP 20          /* in 1 / VIVACE_ONE of the rate: below it a gradient is noise */
#define STEP_BYTES 25000
#define FIRST_AMPLIFIER 2
#define MOST_SWING 2
#define FIRST_BOUND 100 /* in 1 / VIVACE_ONE of the rate */
#define BOUND_GROWTH 70

struct vivace_interval {
	u64 rate;
	u64 send_began_us, send_ended_us;
	s64 utility;
	u32 first_rtt_us, last_rtt_us; /* smoothed */
	u32 first_packet; /* packets sent before the interval; 0: it has not begun */
	u32 end_packet;   /* packets sent by its end; 0: it is still being sent */
	u64 recv_began_us, recv_ended_us;
	u32 lost;
	u32 delivered;
};

enum vivace_mode { START, PROBING, MOVING };

struct vivace {
	struct vivace_interval intervals[INTERVALS];
	u64 rate;
	u64 last_rate;
	u32 sending;   /* index of the interval that is being sent */
	u32 receiving; /* index of the interval whose ACKs arrive */
	u32 counted;   /* packets acknowledged or lost so far */
	u32 counted_beyond; /* excess of the counters over the packets sent, after a timeout */
	u32 last_lost;
	u32 last_delivered;
	u32 amplifier;
	u32 swing;  /* steps of one sign before the amplifier grows */
	u32 bound;  /* largest step, in 1 / VIVACE_ONE of the rate */
	u8 mode;    /* enum vivace_mode */
	bool waits; /* everything that the decision needs has been sent */
	bool timed_out;
};
SKYHOP_STATE(struct vivace);

static u32 smoothed_rtt_us(const struct tcp_sock *tp)
{
	return tp->srtt_us ? max_u32(tp->srtt_us >> 3, 1) : USEC_PER_MSEC;
}

static struct vivace_interval *interval(struct vivace *vivace, u32 index)
{
	return &vivace->intervals[index & (INTERVALS - 1)];
}

/* ---- Intervals ---- */

static void set_cwnd(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = min_u64(sk->sk_pacing_rate, MOST_RATE);
	u64 packets = rate * smoothed_rtt_us(tp) / max_u32(tp->mss_cache, 1) / USEC_PER_SEC;

	tp->snd_cwnd = (u32)min_u64(max_u64(2 * packets, LEAST_CWND), tp->snd_cwnd_clamp);
}

/* Begin the next interval at its rate or, while a decision is pending, continue at the rate before. */
static void begin_interval(struct sock *sk, struct vivace *vivace)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = vivace->rate;

	if (!vivace->waits) {
		struct vivace_interval *now = interval(vivace, vivace->sending);

		now->end_packet = 0;
		now->lost = 0;
		now->delivered = 0;
		now->first_packet = max_u32(tp->data_segs_out, 1);
		now->send_began_us = tp->tcp_mstamp;
		rate = now->rate;
	}
	pacing_set_rate(sk, max_u64(rate, LEAST_RATE));
	set_cwnd(sk);
}

static void begin_round(struct vivace *vivace)
{
	vivace->sending = 0;
	vivace->receiving = 0;
	vivace->waits = false;
}

static void prepare_probes(struct sock *sk, struct vivace *vivace)
{
	u64 low = vivace->rate * (100 - PROBE_PERCENT) / 100;
	u64 high = vivace->rate * (100 + PROBE_PERCENT) / 100;

	for (u32 i = 0; i < INTERVALS; i += 2) {
		bool is_low_first = skyhop_random(sk, 2);

		vivace->intervals[i].rate = is_low_first ? low : high;
		vivace->intervals[i + 1].rate = is_low_first ? high : low;
		vivace->intervals[i].first_packet = 0;
		vivace->intervals[i + 1].first_packet = 0;
	}
	begin_round(vivace);
}

static void probe(struct sock *sk, struct vivace *vivace)
{
	vivace->mode = PROBING;
	prepare_probes(sk, vivace);
}

static void prepare_move(struct vivace *vivace)
{
	vivace->intervals[0].first_packet = 0;
	vivace->intervals[0].rate = vivace->rate;
	begin_round(vivace);
}

/* ---- Utility of a rate ---- */

/* Slope of the RTT over time, in 1 / VIVACE_ONE; 0 if it is within the noise. */
static s64 rtt_slope(struct sock *sk, const struct vivace *vivace, const struct vivace_interval *of)
{
	u64 sent_us = of->send_ended_us - of->send_began_us;
	u64 received_us = of->recv_ended_us - of->recv_began_us;
	s64 grown_us = (s64)of->last_rtt_us - of->first_rtt_us;
	u64 throughput = 0, two_packets_us = 0;
	s64 slope;

	if (received_us)
		throughput = USEC_PER_SEC * of->delivered * tcp_sk(sk)->mss_cache / received_us;
	if (throughput)
		two_packets_us = 2 * USEC_PER_SEC * tcp_sk(sk)->mss_cache / throughput;
	if (!sent_us || pcc_abs(grown_us) < two_packets_us)
		return 0;
	slope = pcc_ratio(grown_us, VIVACE_ONE, sent_us);
	if (pcc_abs(slope) < LEAST_SLOPE || (slope < 0 && vivace->mode == START))
		return 0;
	return pcc_bounded(slope, MOST_SLOPE);
}

/* Reward of a rate: rate in Mbit/s to the power of the exponent. One unit, for an exponent of 1, is a byte per
 * second. */
static s64 worth(struct sock *sk, u64 rate)
{
	u64 exponent = skyhop_param(sk, exponent);

	if (exponent < VIVACE_ONE)
		rate = pcc_power(rate * 8, exponent * PCC_ONE / VIVACE_ONE, 1000000) / 8;
	return (s64)(rate * skyhop_param(sk, throughput) / VIVACE_ONE);
}

/* Utility of an interval (Vivace 3.1), with the module's coefficients, each in units of 1 / VIVACE_ONE. */
static s64 utility(struct sock *sk, const struct vivace *vivace, const struct vivace_interval *of)
{
	u64 rate = min_u64(of->rate, MOST_RATE);
	u64 lost;
	s64 penalty;

	if (!of->delivered)
		return 0;
	lost = (u64)of->lost * VIVACE_ONE / ((u64)of->lost + of->delivered);
	if (vivace->mode == START && lost < START_LOSS)
		lost = 0;
	penalty = pcc_ratio(rtt_slope(sk, vivace, of), skyhop_param(sk, latency), VIVACE_ONE) +
		  (s64)(skyhop_param(sk, loss) * lost / VIVACE_ONE);
	return pcc_bounded(worth(sk, rate) - pcc_ratio(penalty, rate, VIVACE_ONE), MOST_UTILITY);
}

/* ---- Decisions ---- */

static void decide_start(struct sock *sk, struct vivace *vivace)
{
	struct vivace_interval *first = &vivace->intervals[0];
	s64 before = first->utility;

	first->utility = utility(sk, vivace, first);
	if (first->utility > before) {
		vivace->last_rate = vivace->rate;
		vivace->rate = min_u64(vivace->rate + vivace->rate / 2, MOST_RATE);
		first->rate = vivace->rate;
		begin_round(vivace);
	} else {
		u64 rate = vivace->rate;

		vivace->rate = vivace->last_rate;
		vivace->last_rate = rate;
		probe(sk, vivace);
	}
	begin_interval(sk, vivace);
}

/* Decide by both pairs, which have to agree. */
static void decide_probing(struct sock *sk, struct vivace *vivace)
{
	struct vivace_interval *of = vivace->intervals;
	bool first_won, third_won, is_alike;
	u64 rate;

	for (u32 i = 0; i < INTERVALS; i++)
		of[i].utility = utility(sk, vivace, &of[i]);
	first_won = of[0].utility > of[1].utility;
	third_won = of[2].utility > of[3].utility;
	is_alike = of[0].rate == of[2].rate;
	rate = third_won ? of[2].rate : of[3].rate;
	if ((first_won == third_won) == is_alike) {
		vivace->last_rate = rate;
		of[0].utility = third_won ? of[2].utility : of[3].utility;
	} else {
		rate = vivace->rate;
	}
	if (rate != vivace->rate) {
		vivace->mode = MOVING;
		/* Called before the rate changes, so that the first interval is sent at the old one. */
		prepare_move(vivace);
	} else {
		prepare_probes(sk, vivace);
	}
	vivace->rate = rate;
	begin_interval(sk, vivace);
}

/* Gradient du/dx times VIVACE_ONE squared; 0 if the rates differ by no more than noise. */
static s64 gradient(u64 rate, s64 worth_of_it, u64 last_rate, s64 worth_of_last)
{
	u64 apart = rate > last_rate ? rate - last_rate : last_rate - rate;
	s64 gained = pcc_bounded(worth_of_it - worth_of_last, MOST_UTILITY);

	if (apart * VIVACE_ONE / max_u64(rate, 1) < LEAST_STEP)
		return 0;
	return pcc_ratio(rate > last_rate ? gained : -gained, VIVACE_ONE * VIVACE_ONE, apart);
}

/* Let steps of one sign grow, after a few; a step of the other sign starts over. */
static void adapt_steps(struct vivace *vivace, s64 step)
{
	if ((step > 0) == (vivace->rate > vivace->last_rate)) {
		if (vivace->swing)
			vivace->swing--;
		else
			vivace->amplifier = min_u32(vivace->amplifier + 1, 1000);
		return;
	}
	vivace->swing = min_u32(vivace->swing + 1, MOST_SWING);
	vivace->amplifier = FIRST_AMPLIFIER;
	vivace->bound = FIRST_BOUND;
}

/* Limit a step to the bound, which grows each time that it is reached. */
static u64 within_bound(struct vivace *vivace, u64 step)
{
	if (min_u64(step, MOST_RATE) * VIVACE_ONE / max_u64(vivace->rate, 1) <= vivace->bound) {
		vivace->bound = FIRST_BOUND;
		return step;
	}
	step = vivace->rate * vivace->bound / VIVACE_ONE;
	vivace->bound = min_u32(vivace->bound + BOUND_GROWTH, VIVACE_ONE);
	return step;
}

/* Rate after a step along the gradient, large enough to measure the next one. */
static u64 moved_rate(struct vivace *vivace, s64 slope)
{
	s64 step = pcc_bounded(slope, MOST_UTILITY) * (STEP_BYTES / VIVACE_ONE);
	u64 least = vivace->rate * LEAST_STEP / VIVACE_ONE * 11 / 10;
	bool is_up = step >= 0;
	u64 by;

	adapt_steps(vivace, step);
	by = pcc_abs(pcc_ratio(step, vivace->amplifier, VIVACE_ONE));
	by = max_u64(within_bound(vivace, by), least);
	return is_up ? vivace->rate + by : vivace->rate - min_u64(by, vivace->rate);
}

static void decide_moving(struct sock *sk, struct vivace *vivace)
{
	struct vivace_interval *first = &vivace->intervals[0];
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 least = USEC_PER_SEC * LEAST_PACKETS_PER_RTT * tp->mss_cache / smoothed_rtt_us(tp);
	s64 before = first->utility;
	u64 rate;
	bool goes_up;

	first->utility = utility(sk, vivace, first);
	rate = moved_rate(vivace, gradient(vivace->rate, first->utility, vivace->last_rate, before));
	goes_up = rate > vivace->rate;
	vivace->last_rate = vivace->rate;
	vivace->rate = min_u64(max_u64(rate, least), MOST_RATE);
	if (goes_up)
		prepare_move(vivace);
	else
		probe(sk, vivace);
	begin_interval(sk, vivace);
}

/* ---- On each ACK ---- */

/* Whether the interval has enough packets and a round trip of them: the ACK of its first has arrived. */
static void check_sent(struct sock *sk, struct vivace *vivace)
{
	struct vivace_interval *now = interval(vivace, vivace->sending);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (vivace->waits || tp->data_segs_out - now->first_packet < LEAST_PACKETS ||
	    !after(vivace->counted, now->first_packet))
		return;
	now->end_packet = max_u32(tp->data_segs_out, 1);
	now->send_ended_us = tp->tcp_mstamp;
	vivace->sending++;
	vivace->waits = vivace->sending == INTERVALS || vivace->mode != PROBING;
	begin_interval(sk, vivace);
}

static void take_ack(struct sock *sk, const struct vivace *vivace, struct vivace_interval *of)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	of->recv_ended_us = tp->tcp_mstamp;
	of->last_rtt_us = tp->srtt_us >> 3;
	if (!of->lost && !of->delivered) {
		of->recv_began_us = tp->tcp_mstamp;
		of->first_rtt_us = tp->srtt_us >> 3;
	}
	of->lost += tp->lost - vivace->last_lost;
	of->delivered += tp->delivered - vivace->last_delivered;
}

static void check_received(struct sock *sk, struct vivace *vivace)
{
	struct vivace_interval *of = interval(vivace, vivace->receiving);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 counted_before = vivace->counted;

	vivace->counted = tp->delivered + tp->lost - vivace->counted_beyond;
	if (!of->first_packet)
		return;
	if (after(counted_before, of->first_packet + MARGIN_PACKETS))
		take_ack(sk, vivace, of);
	if (!of->end_packet || !after(vivace->counted, of->end_packet - MARGIN_PACKETS))
		return;
	vivace->receiving++;
	if (vivace->mode == START)
		decide_start(sk, vivace);
	else if (vivace->mode == MOVING)
		decide_moving(sk, vivace);
	else if (vivace->receiving == INTERVALS)
		decide_probing(sk, vivace);
}

/* ---- The hooks ---- */

SKYHOP_HOOK(void, vivace_init, struct sock *sk)
{
	struct vivace *vivace = skyhop_state_create(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 window = skyhop_param(sk, initial_window);

	if (!vivace)
		return;
	*vivace = (struct vivace){ .mode = START, .amplifier = FIRST_AMPLIFIER, .bound = FIRST_BOUND };
	vivace->rate = window ? window * tp->mss_cache * USEC_PER_SEC / smoothed_rtt_us(tp) : FIRST_RATE;
	vivace->last_rate = vivace->rate;
	vivace->intervals[0].utility = -MOST_UTILITY - 1;
	vivace->last_lost = tp->lost;
	vivace->last_delivered = tp->delivered;
	tcp_sk(sk)->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	pacing_request(sk);
	prepare_probes(sk, vivace);
	begin_interval(sk, vivace);
}

SKYHOP_HOOK(void, vivace_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct vivace *vivace = skyhop_state(sk);

	(void)ack;
	(void)flag;
	(void)rs;
	if (!vivace)
		return;
	set_cwnd(sk);
	if (!vivace->timed_out) {
		check_sent(sk, vivace);
		check_received(sk, vivace);
	}
	vivace->last_lost = tcp_sk(sk)->lost;
	vivace->last_delivered = tcp_sk(sk)->delivered;
}

/* After a timeout packets are counted twice, as lost and as delivered: nothing is measured until that is over. */
SKYHOP_HOOK(void, vivace_set_state, struct sock *sk, u8 new_state)
{
	struct vivace *vivace = skyhop_state(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!vivace || vivace->timed_out == (new_state == TCP_CA_Loss))
		return;
	vivace->timed_out = new_state == TCP_CA_Loss;
	if (vivace->timed_out) {
		vivace->waits = true;
	} else {
		vivace->counted_beyond = tp->delivered + tp->lost + tcp_packets_in_flight(tp) - tp->data_segs_out;
		/* START does not end by a timeout. */
		prepare_probes(sk, vivace);
	}
	begin_interval(sk, vivace);
}

/* Vivace has no threshold, and no window to restore. */
SKYHOP_HOOK(u32, vivace_ssthresh, struct sock *sk)
{
	(void)sk;
	return TCP_INFINITE_SSTHRESH;
}

SKYHOP_HOOK(u32, vivace_undo_cwnd, struct sock *sk)
{
	return tcp_sk(sk)->snd_cwnd;
}

SKYHOP_MODULE(vivace, "PCC Vivace, the authors' module for Linux: the rate of the highest utility",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(vivace_init),
	      .ssthresh = SKYHOP_FN(vivace_ssthresh),
	      .cong_control = SKYHOP_FN(vivace_cong_control),
	      .set_state = SKYHOP_FN(vivace_set_state),
	      .undo_cwnd = SKYHOP_FN(vivace_undo_cwnd));
