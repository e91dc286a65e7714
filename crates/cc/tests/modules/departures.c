/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* BBR version 3 that reports flight.h's estimate for each ACK's newest packet: its last sequence number, then the
 * packets in flight (upper half) and the packets lost (lower half) at its departure. */
#include "bbr23_core.h"

#define DEPARTURES_PARAMS(P) BBR23_PARAMS(P, 710, 512, 232, 576, 6, 1)
SKYHOP_PARAMS(DEPARTURES_PARAMS);

struct departures {
	struct bbr23 bbr;
	struct flight flight;
};
SKYHOP_STATE(struct departures);

SKYHOP_HOOK(void, departures_init, struct sock *sk)
{
	struct departures *my = skyhop_state_create(sk);

	if (my)
		bbr23_start(sk, &my->bbr, &my->flight, &BBR23_CONFIG, false);
}

SKYHOP_HOOK(void, departures_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct departures *my = skyhop_state(sk);
	struct flight_departure departure;

	(void)ack;
	(void)flag;
	if (!my)
		return;
	if (rs->delivered > 0) {
		departure = flight_of(sk, &my->flight, rs->prior_delivered, rs->last_end_seq);
		skyhop_tell(sk, SKYHOP_HOLD, rs->last_end_seq, (u64)departure.in_flight << 32 | departure.lost);
	}
	bbr23_on_ack(sk, &my->bbr, &my->flight, rs);
}

SKYHOP_HOOK(void, departures_set_state, struct sock *sk, u8 new_state)
{
	struct departures *my = skyhop_state(sk);

	if (my)
		bbr23_on_state(sk, &my->bbr, &my->flight, new_state);
}

SKYHOP_HOOK(u32, departures_ssthresh, struct sock *sk)
{
	struct departures *my = skyhop_state(sk);

	return my ? bbr23_on_recovery(sk, &my->bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, departures_undo_cwnd, struct sock *sk)
{
	struct departures *my = skyhop_state(sk);

	return my ? bbr23_on_undo(&my->bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_MODULE(departures, "what was in flight when packets left",
	      .init = SKYHOP_FN(departures_init),
	      .ssthresh = SKYHOP_FN(departures_ssthresh),
	      .cong_control = SKYHOP_FN(departures_cong_control),
	      .set_state = SKYHOP_FN(departures_set_state),
	      .undo_cwnd = SKYHOP_FN(departures_undo_cwnd));
