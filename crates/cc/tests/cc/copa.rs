//! Copa compared with "Copa: Practical delay-based congestion control for the Internet" (NSDI 2018), on a path
//! of 10 packets per ms and 20 ms.

use crate::path::{Moment, Sender};
use skyhop_cc::{CongestionControl, Instance, Module, RateSample, TcpSock};

const TX_US: u64 = 100;
const RTT_US: u64 = 20_000;
const SECOND: u64 = 1_000_000;

fn copa(params: &[(&str, &str)]) -> Instance {
    Instance::new(Module::find("copa").unwrap(), params).unwrap()
}

fn sender(params: &[(&str, &str)]) -> Sender {
    Sender::new(copa(params), TX_US, RTT_US)
}

/// Average number of packets in the queue.
fn queue(trace: &[Moment]) -> f64 {
    let waited_us =
        trace.iter().map(|moment| u64::from(moment.rtt_us) - RTT_US - TX_US).sum::<u64>();
    waited_us as f64 / trace.len() as f64 / TX_US as f64
}

/// Section 2: the target is 1/delta packets; 3.2: the queue oscillates around it, and at most 2.5/delta packets
/// wait.
#[test]
fn about_one_over_delta_packets_wait() {
    for (delta, packets) in [("0.5", 2.0), ("0.25", 4.0), ("0.1", 10.0), ("0.03125", 32.0)] {
        let mut sender = sender(&[("delta", delta)]);
        sender.run_until(5 * SECOND);
        let waits = queue(&sender.run_until(15 * SECOND));
        assert!((0.5 * packets..2.5 * packets).contains(&waits), "1/delta = {packets}: {waits}");
    }
}

/// Section 2.1: in slow start the window doubles once per round trip.
#[test]
fn it_begins_by_doubling() {
    let trace = sender(&[]).run_until(SECOND + 5 * RTT_US);
    let windows: Vec<u32> = trace.iter().map(|moment| moment.cwnd).collect();
    assert!(windows.contains(&20) && windows.contains(&40), "{windows:?}");
    assert!(windows.iter().all(|cwnd| [10, 20, 40, 80, 160].contains(cwnd)), "{windows:?}");
}

/// Section 2.1: the velocity doubles from the third round trip on. At a constant speed, 2 packets per round
/// trip, 800 more would take 400.
#[test]
fn a_long_way_is_gone_faster_and_faster() {
    let mut sender = sender(&[]);
    sender.run_until(5 * SECOND);
    sender.tx_us = TX_US / 5;
    let before = sender.tp.snd_cwnd;
    let trace = sender.run_until(6 * SECOND);
    let arrived = trace.iter().find(|moment| moment.cwnd > before + 700).expect("it arrives");
    let rounds = arrived.rounds - trace[0].rounds;
    assert!((8..30).contains(&rounds), "{rounds}");
}

/// Process a round trip of ACKs of single packets, each after this RTT.
fn round(cc: &mut Instance, tp: &mut TcpSock, rtt_us: u64) {
    let acks = u64::from(tp.snd_cwnd);
    tp.srtt_us = 8 * rtt_us as u32;
    tp.max_packets_out = tp.snd_cwnd;
    tp.set_cwnd_limited(true);
    for _ in 0..acks {
        tp.tcp_mstamp += rtt_us / acks;
        let rs = RateSample { rtt_us: rtt_us as i64, acked_sacked: 1, ..RateSample::default() };
        cc.cong_control(tp, 0, 0, &rs);
    }
}

/// Window after so many round trips in a queue of 20 ms that other flows keep full.
fn among_others(params: &[(&str, &str)], rounds: u32) -> (Instance, TcpSock) {
    let mut tp = TcpSock { tcp_mstamp: 1_000_000, ..TcpSock::default() };
    let mut cc = copa(params);
    cc.init(&mut tp);
    round(&mut cc, &mut tp, RTT_US);
    for _ in 0..rounds {
        round(&mut cc, &mut tp, 2 * RTT_US);
    }
    (cc, tp)
}

/// Section 2.2: while the queue never empties, 1/delta grows by one packet per round trip. Half of the RTT is
/// queue, so the window's target is twice 1/delta.
#[test]
fn among_others_it_grows_as_reno_does_and_only_if_it_may() {
    let (_, alone) = among_others(&[("competitive", "0")], 200);
    assert!((2..=10).contains(&alone.snd_cwnd), "{}", alone.snd_cwnd);
    let windows = [100, 200].map(|rounds| among_others(&[], rounds).1.snd_cwnd);
    let grown = f64::from(windows[1] - windows[0]) / 100.0;
    assert!((1.5..2.5).contains(&grown), "{windows:?}");
}

/// Section 2.2: 1/delta halves after a loss in competitive mode.
#[test]
fn among_others_a_loss_halves_the_target() {
    let (mut cc, mut tp) = among_others(&[], 200);
    let before = f64::from(tp.snd_cwnd);
    cc.ssthresh(&mut tp);
    for _ in 0..20 {
        round(&mut cc, &mut tp, 2 * RTT_US);
    }
    let left = f64::from(tp.snd_cwnd) / before;
    assert!((0.35..0.75).contains(&left), "{left}");
    // Without competing flows a loss has no effect.
    let (mut cc, mut tp) = among_others(&[("competitive", "0"), ("delta", "0.01")], 100);
    let before = tp.snd_cwnd;
    cc.ssthresh(&mut tp);
    round(&mut cc, &mut tp, 2 * RTT_US);
    assert!(tp.snd_cwnd > before * 3 / 4, "{} of {before}", tp.snd_cwnd);
}

/// Variant kernel: any sample replaces a minimum RTT that is ten seconds old.
#[test]
fn the_least_rtt_is_forgotten_after_ten_seconds() {
    let target_after = |params: &[(&str, &str)]| among_others(params, 300).1.snd_cwnd;
    let fixed = [("delta", "0.1"), ("competitive", "0")];
    let with = |more| [fixed[0], fixed[1], more];
    // After 12 s only samples with the queue of 20 ms remain; its delay now counts as the path's, and the
    // window grows.
    for variant in ["paper", "kernel"] {
        let forgot = target_after(&with(("variant", variant)));
        let keeps =
            target_after(&[fixed[0], fixed[1], ("variant", variant), ("min_rtt_window", "100 s")]);
        assert!((15..30).contains(&keeps), "{variant}: {keeps}");
        assert!(forgot > 100, "{variant}: {forgot}");
    }
}
