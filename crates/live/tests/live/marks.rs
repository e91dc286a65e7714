//! Tests of ECN: flows that negotiate it on the kernel's own stack, and packets that a queue marks.

use skyhop_experiment::{Experiment, FlowPlan, Traffic};
use skyhop_link::{CodelConfig, QueueDiscipline};
use skyhop_model::{Direction, End, LossReason};
use skyhop_record::FlowSummary;

use crate::lab::{self, fixed, mbit, ms, tcp};

/// Experiment of 20 Mbit/s and 20 ms RTT, with a queue that marks ECN-capable packets.
fn marking(duration_ms: u64, flows: impl IntoIterator<Item = FlowPlan>) -> Experiment {
    let mut experiment = fixed(ms(10), mbit(20), ms(duration_ms));
    let codel = CodelConfig { ecn: true, ..CodelConfig::default() };
    experiment.links[0].forward.qdisc = QueueDiscipline::Codel(codel);
    experiment.flows.extend(flows);
    experiment
}

fn with_ecn(mut flow: FlowPlan) -> FlowPlan {
    if let Traffic::Tcp { options, .. } = &mut flow.traffic {
        options.ecn = true;
    }
    flow
}

/// Experiment with two flows with ECN and two without, in the same namespace.
fn of_both_kinds(duration_ms: u64) -> Experiment {
    let flow = |id| tcp(id, End::From, "cubic", None);
    marking(duration_ms, [flow(0), with_ecn(flow(1)), flow(2), with_ecn(flow(3))])
}

#[test]
fn flows_with_ecn_alone_are_marked() {
    let Some(outcome) = lab::run(&of_both_kinds(2000)) else { return };
    let data = &outcome.data;
    let marks = |flow: &FlowSummary| flow.marks.unwrap_or(0);
    for flow in data.summary.flows.iter().filter(|flow| flow.id % 2 == 0) {
        assert_eq!(marks(flow), 0, "{flow:?}");
    }
    let sum: u64 = data.summary.flows.iter().map(marks).sum();
    assert_eq!(data.summary.link.marks, sum, "no other packet is marked");
    let forward = data.link.iter().filter(|row| row.direction == Direction::Forward);
    let by_samples: i64 = forward.map(|row| row.marks).sum();
    assert!((1..=sum as i64).contains(&by_samples), "{by_samples} of {sum}");
}

/// Soak test, because a machine that stalls lets the queue overflow, which drops packets of both kinds of flows.
#[test]
#[ignore = "soak: measures time"]
fn flows_with_ecn_are_marked_and_those_without_lose_packets() {
    for device in lab::devices() {
        let experiment = Experiment { device, ..of_both_kinds(5000) };
        let Some(outcome) = lab::run(&experiment) else { return };
        let data = &outcome.data;
        for flow in &data.summary.flows {
            let asked = flow.id % 2 == 1;
            assert_eq!(flow.marks > Some(0), asked, "{device}: {flow:?}");
            let lost = data.events.iter().filter(|row| {
                row.reason == Some(LossReason::Queue)
                    && row.flow == Some(flow.id as i32)
                    && row.t_ns > 1_000_000_000
            });
            assert_eq!(lost.count() == 0, asked, "{device}: {flow:?}");
            assert!(!asked || flow.retransmits == 0, "{device}: {flow:?}");
        }
    }
}

/// Check that the kernel reduces its window for a mark, so that the queue stays short.
#[test]
#[ignore = "soak: measures time"]
fn the_kernel_believes_the_marks() {
    let experiment = marking(5000, [with_ecn(tcp(0, End::From, "cubic", None))]);
    let Some(outcome) = lab::run(&experiment) else { return };
    let (rows, summary) = (&outcome.data.flows, &outcome.data.summary);
    assert!(rows.iter().any(|row| row.ssthresh_packets.is_some()), "{summary:?}");
    let srtt_us = lab::median(rows.iter().filter_map(|row| row.srtt_us).collect());
    assert!((20_000..32_000).contains(&srtt_us), "{srtt_us} us");
    assert!(summary.link.utilisation > 0.8, "{summary:?}");
}
