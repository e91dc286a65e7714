//! Tests of bulk TCP flows on the kernel's own stack.

use crate::lab;
use skyhop_model::{Direction, End};
use skyhop_units::Duration;

use crate::lab::{at, fixed, mbit, ms, tcp};
use skyhop_engine::{Control, Unattended};
use skyhop_host::HostError;
use skyhop_live::LiveOptions;

#[test]
fn two_flows_use_the_congestion_control_of_their_own() {
    let mut experiment = fixed(ms(10), mbit(40), ms(2000));
    experiment.flows.push(tcp(3, End::From, "cubic", None));
    experiment.flows.push(tcp(4, End::From, "reno", None));
    experiment.flows[1].start = at(500);
    experiment.flows[1].stop = at(1500);
    let Some(outcome) = lab::run(&experiment) else { return };
    let flows = &outcome.data.summary.flows;
    let names: Vec<(u32, &str)> = flows.iter().map(|flow| (flow.id, flow.cc.as_str())).collect();
    assert_eq!(names, [(3, "cubic"), (4, "reno")]);
    for flow in flows {
        assert!(flow.goodput_bps > 0, "{flow:?}");
        assert!(flow.srtt_mean_us.is_some_and(|srtt| srtt >= 20_000), "{flow:?}");
        assert_eq!((flow.base_rtt_mean_us, flow.completion_s), (20_000, None));
        assert!(flow.sent_packets > 0 && flow.cwnd_mean_packets > 0.0, "{flow:?}");
    }
    assert_eq!(flows[1].start_s, 0.5);
    assert!(flows[1].stop_s >= 1.5, "{:?}", flows[1]);
    let rows_of = |id| outcome.data.flows.iter().filter(move |row| row.flow == id);
    assert!(rows_of(4).all(|row| row.t_ns >= 500_000_000 && row.pacing_rate_bps.is_none()));
    assert!(rows_of(3).count() > rows_of(4).count() && rows_of(4).count() > 0);
    let total: u64 = flows.iter().map(|flow| flow.sent_packets).sum();
    assert_eq!(outcome.data.summary.data_packets, total);
    assert!(outcome.data.summary.link.utilisation <= 1.01, "{:?}", outcome.data.summary.link);
}

#[test]
#[ignore = "soak: measures time"]
fn flows_fill_the_link_while_they_last() {
    let mut experiment = fixed(ms(10), mbit(40), ms(2000));
    experiment.flows = vec![tcp(3, End::From, "cubic", None), tcp(4, End::To, "reno", None)];
    experiment.flows[1].stop = at(1500);
    let Some(outcome) = lab::run(&experiment) else { return };
    let flows = &outcome.data.summary.flows;
    for flow in flows {
        assert!(flow.goodput_bps > 5_000_000 && flow.sent_packets > 50, "{flow:?}");
    }
    assert!((1.5..1.6).contains(&flows[1].stop_s), "{:?}", flows[1]);
}

#[test]
fn a_flow_may_go_the_other_way() {
    let mut experiment = fixed(ms(10), mbit(20), ms(1000));
    experiment.flows.push(tcp(0, End::To, "cubic", None));
    let Some(outcome) = lab::run(&experiment) else { return };
    let delivered = |direction: Direction| -> i64 {
        let rows = outcome.data.link.iter().filter(|row| row.direction == direction);
        rows.map(|row| row.delivered_bytes).sum()
    };
    assert!(
        delivered(Direction::Back) > 5 * delivered(Direction::Forward),
        "data goes back, ACKs forward"
    );
    assert!(outcome.data.summary.flows[0].goodput_bps > 0);
}

#[test]
fn a_finite_transfer_completes() {
    completes(100_001, 1500);
}

#[test]
#[ignore = "soak: measures time"]
fn a_transfer_of_2_mb_completes_in_3_s() {
    completes(2_000_001, 3000);
}

fn completes(bytes: u64, duration_ms: u64) {
    for device in lab::devices() {
        let mut experiment = fixed(ms(10), mbit(40), ms(duration_ms));
        experiment.device = device;
        experiment.flows.push(tcp(0, End::From, "cubic", Some(bytes)));
        let Some(outcome) = lab::run(&experiment) else { continue };
        let flow = &outcome.data.summary.flows[0];
        let completion_s = flow.completion_s.expect("all bytes have passed");
        // One RTT for the handshake, half an RTT for the data, and the transmission time.
        assert!(completion_s > 0.03 + bytes as f64 * 8.0 / 40e6, "{completion_s} s");
        assert_eq!(flow.stop_s, completion_s);
        assert!((flow.goodput_bps as f64 * completion_s / 8.0 - bytes as f64).abs() < 1.0);
    }
}

#[test]
fn an_unknown_congestion_control_is_refused_with_those_there_are() {
    for name in ["no-such-cc", "", "cubic-and-a-name-that-is-too-long"] {
        let mut experiment = fixed(ms(10), mbit(40), ms(1000));
        experiment.flows.push(tcp(0, End::From, name, None));
        let result = lab::live(&experiment, &LiveOptions::default(), &mut Unattended);
        let Some(result) = lab::allowed(result) else { return };
        let error = result.expect_err("there is no such congestion control");
        assert!(matches!(error, HostError::UnknownCongestionControl { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(name) && message.contains("reno"), "{message}");
    }
}

/// Caller that interrupts the run after 700 ms.
struct InterruptLater {
    progress: Vec<Duration>,
}

impl Control for InterruptLater {
    fn progress(&mut self, elapsed: Duration, total: Duration) {
        assert_eq!(total, Duration::from_secs(60));
        self.progress.push(elapsed);
    }

    fn interrupted(&mut self) -> bool {
        self.progress.last().is_some_and(|elapsed| *elapsed >= Duration::from_millis(700))
    }
}

#[test]
fn an_interrupted_run_returns_what_was_measured() {
    let mut experiment = fixed(ms(10), mbit(20), ms(60_000));
    experiment.flows.push(tcp(0, End::From, "cubic", None));
    let mut control = InterruptLater { progress: Vec::new() };
    let result = lab::live(&experiment, &LiveOptions::default(), &mut control);
    let Some(result) = lab::allowed(result) else { return };
    let outcome = result.expect("what was measured");
    assert!(outcome.interrupted);
    let summary = &outcome.data.summary;
    assert!((0.7..60.0).contains(&summary.virtual_s), "{} s", summary.virtual_s);
    assert!(summary.flows[0].goodput_bps > 0 && !outcome.data.flows.is_empty());
}
