//! BBRv1 compared with draft-cardwell-iccrg-bbr-congestion-control-00, on a path of 10 packets per ms and 40
//! ms: a BDP of 400 packets. The tests assert behaviour only: the algorithm's state is private.

use crate::path::{MSS, Moment, Sender};
use skyhop_cc::{CaEvent, CongestionControl, Instance, Module, RateSample, TcpSock};
use skyhop_model::CongestionState;

const TX_US: u64 = 100;
const RTT_US: u64 = 40_000;
const SECOND: u64 = 1_000_000;
const BDP: u32 = (RTT_US / TX_US) as u32;
/// Rate of the bottleneck less Linux's margin of 1 %, in bytes per second.
const ESTIMATE: f64 = (MSS * 1_000_000 / TX_US) as f64 * 0.99;
const STARTUP_GAIN: f64 = 739.0 / 256.0;

fn bbr(params: &[(&str, &str)]) -> Instance {
    Instance::new(Module::find("bbr").unwrap(), params).unwrap()
}

fn sender(seed: u64) -> Sender {
    Sender::new(bbr(&[]).with_seed(seed), TX_US, RTT_US)
}

/// Pacing rate in multiples of the bottleneck's.
fn gain(moment: &Moment) -> f64 {
    moment.pacing_rate as f64 / ESTIMATE
}

fn is_near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 0.015
}

/// Stretches of equal gain: (gain, first moment, time of the next stretch).
fn phases(trace: &[Moment]) -> Vec<(f64, Moment, u64)> {
    let mut phases: Vec<(f64, Moment, u64)> = Vec::new();
    for moment in trace {
        match phases.last_mut() {
            Some((gain_now, _, end)) if is_near(gain(moment), *gain_now) => *end = moment.at_us,
            _ => phases.push((gain(moment), *moment, moment.at_us)),
        }
    }
    phases
}

/// STARTUP paces at 2.89 times the estimate (draft 4.2.1 and 4.3.2.1).
#[test]
fn startup_paces_at_2_89_windows_per_rtt_and_doubles() {
    let mut sender = sender(1);
    let first = STARTUP_GAIN * 0.99 * 10.0 * MSS as f64 / 0.040;
    assert!(is_near(sender.tp.sk().sk_pacing_rate as f64, first));
    let trace = sender.run_until(SECOND + 5 * RTT_US);
    let window = |round| trace.iter().rfind(|moment| moment.rounds == round).unwrap().cwnd;
    // The rate nearly doubles: a rate sample spans an RTT and the time that pacing takes, a little less than
    // the growth
    let windows = [1, 2, 3, 4].map(window);
    for pair in windows.windows(2) {
        assert!((1.75..=2.0).contains(&(f64::from(pair[1]) / f64::from(pair[0]))), "{windows:?}");
    }
}

/// draft 4.3.2.2: STARTUP ends after three rounds that grow by less than a quarter; 4.3.3: then DRAIN at the
/// inverse gain.
#[test]
fn startup_ends_after_three_flat_rounds_and_drains_to_a_bdp() {
    let trace = sender(1).run_until(2 * SECOND);
    let full = trace.iter().find(|moment| is_near(gain(moment), STARTUP_GAIN)).unwrap();
    let drain = trace.iter().find(|m| m.at_us > full.at_us && gain(m) < 0.5).unwrap();
    assert!(is_near(gain(drain), 88.0 / 256.0), "gain {}", gain(drain));
    // The rate reaches its maximum within a round; its end sets the baseline, three rounds follow.
    assert!((3..=4).contains(&(drain.rounds - full.rounds)), "{full:?} {drain:?}");
    assert!(drain.inflight > 2 * BDP, "a queue: {}", drain.inflight);
    let after = trace.iter().find(|m| m.at_us > drain.at_us && gain(m) > 0.7).unwrap();
    // One BDP and three bursts of 15,000,000 >> 10 bytes, nine packets each, are in flight.
    assert!((BDP..=BDP + 40).contains(&after.inflight), "{after:?}");
    assert_eq!(drain.ssthresh, after.ssthresh, "ssthresh remembers the BDP");
}

/// draft 4.3.4.1: gains of 5/4, 3/4, and six times 1, a min_rtt each (3/4 ends early when the queue is gone).
#[test]
fn probe_bw_cycles_through_eight_phases() {
    let mut sender = sender(3);
    sender.run_until(3 * SECOND);
    let trace = sender.run_until(9 * SECOND);
    let phases = phases(&trace);
    let ups: Vec<usize> = (1..phases.len() - 3).filter(|&i| is_near(phases[i].0, 1.25)).collect();
    assert!(ups.len() >= 14, "{} cycles in 6 s", ups.len());
    for i in ups {
        assert!(is_near(phases[i + 1].0, 0.75), "after 5/4 comes {}", phases[i + 1].0);
        assert!(is_near(phases[i + 2].0, 1.0), "after 3/4 comes {}", phases[i + 2].0);
        let length = |i: usize| (phases[i + 1].1.at_us - phases[i].1.at_us) as f64 / RTT_US as f64;
        assert!((1.0..2.1).contains(&length(i)), "5/4 for {} RTT", length(i));
        assert!((0.2..1.1).contains(&length(i + 1)), "3/4 for {} RTT", length(i + 1));
        assert!((6.0..6.3).contains(&length(i + 2)), "1 for {} RTT", length(i + 2));
    }
    let cwnd = trace.last().unwrap().cwnd;
    assert!((2 * BDP..=2 * BDP + 100).contains(&cwnd), "cwnd is two BDPs: {cwnd}");
}

/// draft 4.3.4.2: any phase but the one at 3/4 may be the first; the seed alone decides.
#[test]
fn the_first_phase_is_random_and_repeatable() {
    let first_up_us = |seed| {
        let trace = sender(seed).run_until(3 * SECOND);
        let full = trace.iter().position(|moment| is_near(gain(moment), STARTUP_GAIN)).unwrap();
        let drained = full + trace[full..].iter().position(|m| gain(m) < 0.5).unwrap();
        let cruising = drained + trace[drained..].iter().position(|m| gain(m) > 0.9).unwrap();
        let up = trace[cruising..].iter().find(|moment| is_near(gain(moment), 1.25)).unwrap();
        (up.at_us - trace[cruising].at_us) / RTT_US
    };
    let waits: Vec<u64> = (0..24).map(first_up_us).collect();
    assert!(waits.iter().all(|wait| *wait <= 7), "{waits:?}");
    let distinct: std::collections::BTreeSet<_> = waits.iter().collect();
    assert!(distinct.len() >= 5, "{waits:?}");
    assert_eq!(sender(7).run_until(3 * SECOND), sender(7).run_until(3 * SECOND));
}

/// draft 4.3.5: PROBE_RTT every 10 s, four packets, for 200 ms and a round, then the window is restored.
#[test]
fn probe_rtt_comes_every_ten_seconds() {
    for (rtt_us, least_us) in [(RTT_US, 200_000), (300_000, 300_000)] {
        let mut sender = Sender::new(bbr(&[]).with_seed(1), TX_US, rtt_us);
        let trace = sender.run_until(45 * SECOND);
        let is_low = |moment: &Moment| moment.cwnd == 4;
        let edges: Vec<usize> =
            (1..trace.len()).filter(|&i| is_low(&trace[i]) != is_low(&trace[i - 1])).collect();
        assert!(edges.len() >= 6, "{} edges", edges.len());
        for edge in edges.chunks_exact(2) {
            let (start, end) = (&trace[edge[0]], &trace[edge[1]]);
            let four = trace[edge[0]..edge[1]].iter().find(|m| m.inflight <= 4).unwrap();
            let held_us = end.at_us - four.at_us;
            let most_us = least_us + 2 * rtt_us + 2_000;
            assert!((least_us..=most_us).contains(&held_us), "{held_us} us at four packets");
            // The allowance for bursts (three of 12 packets) is a fourth larger in the phase at 5/4.
            let before = trace[edge[0] - 1].cwnd;
            assert!(end.cwnd + 12 >= before, "{before}, {}, {}", start.cwnd, end.cwnd);
            assert!(end.rtt_us < rtt_us as u32 + 1_000, "no queue: {}", end.rtt_us);
        }
        for pair in edges.chunks_exact(2).collect::<Vec<_>>().windows(2) {
            // The interval lasts from the end of one PROBE_RTT, which renews the estimate, to the start of the
            // next
            let quiet_us = trace[pair[1][0]].at_us - trace[pair[0][1]].at_us;
            assert!((10 * SECOND..10 * SECOND + 10_000).contains(&quiet_us), "{quiet_us} us");
        }
    }
}

#[test]
fn probe_rtt_can_be_turned_off() {
    let mut sender = Sender::new(bbr(&[("probe_rtt_time", "0")]), TX_US, RTT_US);
    let trace = sender.run_until(25 * SECOND);
    assert!(trace.iter().all(|moment| moment.cwnd > 4));
}

/// draft 4.1.1.2: an outdated rate counts for ten more rounds.
#[test]
fn the_bandwidth_filter_spans_ten_rounds() {
    let mut sender = sender(1);
    sender.run_until(4 * SECOND);
    sender.tx_us = 2 * TX_US;
    let trace = sender.run_until(8 * SECOND);
    let lowest = |m: &&Moment| is_near(gain(m), 0.5) || gain(m) < 0.5;
    let fell = trace.iter().find(lowest).unwrap();
    let rounds = fell.rounds - trace[0].rounds;
    assert!((10..=13).contains(&rounds), "{rounds} rounds");
    let rose = {
        sender.tx_us = TX_US;
        let trace = sender.run_until(12 * SECOND);
        trace.iter().find(|m| is_near(gain(m), 1.0)).map(|m| m.at_us)
    };
    assert!(rose.is_some(), "more bandwidth is found by probing");
}

fn steady() -> Sender {
    let mut sender = sender(1);
    sender.run_until(4 * SECOND);
    sender
}

/// draft 4.2.3.4: one packet out for one in during the first round of recovery, the whole window after it.
#[test]
fn recovery_conserves_packets_and_restores_the_window() {
    let Sender { mut cc, mut tp, .. } = steady();
    let before = tp.snd_cwnd;
    let ack = |tp: &TcpSock, losses| RateSample {
        prior_delivered: tp.delivered - 1,
        delivered: 1,
        interval_us: TX_US as i64,
        rtt_us: RTT_US as i64,
        losses,
        acked_sacked: 2,
        prior_in_flight: tp.packets_in_flight(),
        ..RateSample::default()
    };
    assert_eq!(cc.ssthresh(&mut tp), tp.snd_ssthresh);
    cc.set_state(&mut tp, CongestionState::Recovery);
    tp.set_ca_state(CongestionState::Recovery);
    tp.lost_out = 50;
    tp.lost += 50;
    let sample = ack(&tp, 50);
    // the sample must not end a round: conservation lasts one
    let sample = RateSample { prior_delivered: 0, ..sample };
    cc.cong_control(&mut tp, 0, 0, &sample);
    assert_eq!(tp.snd_cwnd, tp.packets_in_flight() + 2);
    tp.set_ca_state(CongestionState::Open);
    tp.lost_out = 0;
    let sample = ack(&tp, 0);
    cc.cong_control(&mut tp, 0, 0, &sample);
    assert!(tp.snd_cwnd + 4 >= before, "{before} became {}", tp.snd_cwnd);
}

/// draft 4.2.3.4: after a timeout the window that Linux sets (1) grows and then returns.
#[test]
fn a_timeout_keeps_the_last_good_window() {
    let Sender { mut cc, mut tp, .. } = steady();
    let before = tp.snd_cwnd;
    cc.ssthresh(&mut tp);
    cc.set_state(&mut tp, CongestionState::Loss);
    tp.set_ca_state(CongestionState::Loss);
    tp.snd_cwnd = 1;
    let sample =
        RateSample { interval_us: -1, acked_sacked: 1, rtt_us: -1, ..RateSample::default() };
    cc.cong_control(&mut tp, 0, 0, &sample);
    assert_eq!(tp.snd_cwnd, 4, "never under four");
    tp.set_ca_state(CongestionState::Open);
    cc.cong_control(&mut tp, 0, 0, &sample);
    assert!(tp.snd_cwnd >= before);
}

/// Linux: aggregated ACKs increase the window, or the flow would stall between them.
#[test]
fn aggregated_acks_earn_window() {
    let cwnd = |extra: &str| {
        let mut sender = Sender::new(bbr(&[("extra_acked_gain", extra)]), TX_US, RTT_US);
        sender.ack_grid_us = 20_000;
        sender.run_until(5 * SECOND).last().unwrap().cwnd
    };
    assert!(cwnd("1") > cwnd("0") + 100, "{} and {}", cwnd("1"), cwnd("0"));
}

/// draft 4.3.4.4: after idle BBR paces at the estimate, without a probe and without PROBE_RTT.
#[test]
fn after_idle_it_paces_at_the_estimate() {
    let Sender { mut cc, mut tp, .. } = steady();
    tp.packets_out = 0;
    tp.app_limited = 1;
    tp.tcp_mstamp += 20 * SECOND;
    cc.cwnd_event(&mut tp, CaEvent::TxStart);
    assert!(is_near(tp.sk().sk_pacing_rate as f64, ESTIMATE));
    let sample = RateSample {
        prior_delivered: tp.delivered - 1,
        delivered: 1,
        interval_us: RTT_US as i64,
        rtt_us: RTT_US as i64,
        acked_sacked: 1,
        is_app_limited: true,
        ..RateSample::default()
    };
    cc.cong_control(&mut tp, 0, 0, &sample);
    assert!(tp.snd_cwnd > 4);
}

/// Linux's long-term bandwidth: two intervals of 4 rounds that lose a fifth at the same rate.
#[test]
fn a_policer_is_found_and_left_after_48_rounds() {
    let gains_of = |long_term: &str| {
        let mut sender = Sender::new(bbr(&[("long_term", long_term)]).with_seed(1), TX_US, RTT_US);
        sender.run_until(4 * SECOND);
        let Sender { mut cc, mut tp, .. } = sender;
        (0..80).map(|_| policed_round(&mut cc, &mut tp)).collect::<Vec<u64>>()
    };
    let policed = (MSS * 200 * 25) as f64 * 0.99;
    let is_found = |rate: &&u64| is_near(**rate as f64, policed);
    let with = gains_of("1");
    let at = with.iter().position(|rate| is_found(&rate)).unwrap();
    assert!((7..=11).contains(&at), "found in round {at}");
    let steady = with[at..].iter().take_while(is_found).count();
    assert!((46..=48).contains(&steady), "used for {steady} rounds");
    let without = gains_of("0");
    let probes = without[at..at + 48].iter().filter(|rate| !is_found(rate)).count();
    assert!(probes >= 10, "without it, the cycle goes on: {probes}");
}

/// Process a round in which 200 packets arrive and 100 are lost, while single samples still look as fast as the
/// link.
fn policed_round(cc: &mut Instance, tp: &mut TcpSock) -> u64 {
    let start = tp.delivered;
    tp.tcp_mstamp += RTT_US;
    tp.delivered_mstamp = tp.tcp_mstamp;
    tp.delivered += 200;
    tp.lost += 100;
    let sample = RateSample {
        prior_delivered: start,
        delivered: 400,
        interval_us: RTT_US as i64,
        rtt_us: RTT_US as i64,
        losses: 100,
        acked_sacked: 200,
        prior_in_flight: 2 * BDP,
        ..RateSample::default()
    };
    cc.cong_control(tp, 0, 0, &sample);
    tp.sk().sk_pacing_rate
}

/// Burst sizes of draft 4.2.2, and Linux's send buffer of three windows.
#[test]
fn bursts_are_one_packet_on_slow_paths_and_two_on_fast_ones() {
    let Sender { mut cc, mut tp, .. } = steady();
    assert_eq!(cc.min_tso_segs(&mut tp), Some(2));
    tp.sk_mut().sk_pacing_rate = 1_200_000 / 8 - 1;
    assert_eq!(cc.min_tso_segs(&mut tp), Some(1));
    assert_eq!(cc.sndbuf_expand(&mut tp), Some(3));
}
