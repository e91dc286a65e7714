//! ECN: flows that ask for it on the kernel's own stack, and frames that a queue marks.

use skyhop_experiment::{Experiment, FlowPlan, Traffic};
use skyhop_link::{CodelConfig, QueueDiscipline};
use skyhop_model::{Direction, End, LossReason};

use crate::lab::{self, fixed, mbit, ms, tcp};

/// 5 s over 20 Mbit/s and 20 ms, through a queue that marks where it may.
fn marking(flows: impl IntoIterator<Item = FlowPlan>) -> Experiment {
    let mut experiment = fixed(ms(10), mbit(20), ms(5000));
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

/// Both kinds of flows in the same namespace: each connects as it was told to.
#[test]
fn flows_with_ecn_are_marked_and_those_without_lose_packets() {
    let _alone = lab::alone();
    let flow = |id| tcp(id, End::From, "cubic", None);
    for device in lab::devices() {
        let mut experiment = marking([flow(0), with_ecn(flow(1)), flow(2), with_ecn(flow(3))]);
        experiment.device = device;
        lab::one_of_three(|| {
            let Some(outcome) = lab::run(&experiment) else { return Ok(()) };
            let data = &outcome.data;
            for flow in &data.summary.flows {
                let asked = flow.id % 2 == 1;
                assert_eq!(flow.marks > Some(0), asked, "{device}: {flow:?}");
                // A machine that stalls fills the queue beyond its limit, with ECN or without.
                let lost = data.events.iter().filter(|row| {
                    row.reason == Some(LossReason::Queue)
                        && row.flow == Some(flow.id as i32)
                        && row.t_ns > 1_000_000_000
                });
                if (lost.count() == 0) != asked || (asked && flow.retransmits > 0) {
                    return Err(format!("{device}: {flow:?}"));
                }
            }
            let marks: u64 = data.summary.flows.iter().filter_map(|flow| flow.marks).sum();
            assert_eq!(data.summary.link.marks, marks, "{device}: nobody else speaks ECN");
            let forward = data.link.iter().filter(|row| row.direction == Direction::Forward);
            let by_samples: i64 = forward.map(|row| row.marks).sum();
            assert!((1..=marks as i64).contains(&by_samples), "{device}: {by_samples} of {marks}");
            Ok(())
        });
    }
}

/// The kernel answers a mark with one reduction, not a retransmission: the queue stays short.
#[test]
fn the_kernel_believes_the_marks() {
    let _alone = lab::alone();
    let experiment = marking([with_ecn(tcp(0, End::From, "cubic", None))]);
    lab::one_of_three(|| {
        let Some(outcome) = lab::run(&experiment) else { return Ok(()) };
        let (rows, summary) = (&outcome.data.flows, &outcome.data.summary);
        assert!(rows.iter().any(|row| row.ssthresh_packets.is_some()), "{summary:?}");
        let srtt_us = lab::median(rows.iter().filter_map(|row| row.srtt_us).collect());
        let is_short = (20_000..32_000).contains(&srtt_us);
        if is_short && summary.link.utilisation > 0.8 {
            return Ok(());
        }
        Err(format!("srtt {srtt_us} us, {summary:?}"))
    });
}
