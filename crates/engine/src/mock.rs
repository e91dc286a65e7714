//! Engine that invents its numbers: instantly, and the same each time. Its results have the experiment's flows,
//! links, probes, applications and times, but quantities are made up.

use serde::Serialize;
use skyhop_app::{App, AppKind as _, Detail, Probe, Transaction};
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_link::LinkStats;
use skyhop_model::{CongestionState, Direction, LARGEST_PACKET, LossReason};
use skyhop_record::{EventRow, FlowEnd, FlowState, Recorder, RunConclusion, Sink};
use skyhop_units::{Bytes, Duration, Instant};

use crate::{Control, Ended, Engine, EngineError, Unsupported};

/// Engine of this [module](self), for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mock;

/// Part of run.json that is specific to this engine.
#[derive(Serialize)]
struct MockRun {
    mock: bool,
}

impl Engine for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn check(&self, experiment: &Experiment) -> Result<(), Unsupported> {
        if experiment.flows.is_empty() {
            return Err(Unsupported::new("flow", "there is nothing to run: add a [[flow]]"));
        }
        Ok(())
    }

    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError> {
        self.check(experiment)?;
        let mut recorder = Recorder::begin(experiment, self.name(), sink)?;
        crate::warnings(experiment).into_iter().for_each(|warning| recorder.warn(warning));
        let end = Instant::START + experiment.duration;
        let (mut at, mut interrupted) = (Instant::START, false);
        // Number of transactions recorded so far, by flow.
        let mut recorded = vec![0; experiment.flows.len()];
        while at < end && !interrupted {
            at = (at + experiment.sample).min(end);
            for (flow, next) in experiment.flows.iter().zip(&mut recorded) {
                while let Some(one) = transaction(experiment, flow, at, *next) {
                    recorder.transaction(flow.id, &one, one.took);
                    *next += 1;
                }
            }
            let flows = experiment.flows.iter().filter_map(|flow| flow_state(experiment, flow, at));
            recorder.sample(at, flows, link_stats(experiment, at))?;
            control.progress(at.saturating_since(Instant::START), experiment.duration);
            interrupted = at < end && control.interrupted();
        }
        recorder.event(EventRow::lost(at, LossReason::Queue, (0, Direction::Forward), None));
        for flow in experiment.flows.iter().filter(|flow| flow.start < at) {
            if let Some(state) = flow_state(experiment, flow, at) {
                recorder.flow_ended(&flow_end(&state));
            }
        }
        recorder.warn("these numbers are made up".to_owned());
        let own = MockRun { mock: true };
        recorder.finish(RunConclusion::new(at, interrupted, own))?;
        Ok(Ended { at, interrupted, program_status: None })
    }
}

/// Bytes that a flow has received: an equal share of the first link's first rate.
fn received(experiment: &Experiment, flow: &FlowPlan, at: Instant) -> Bytes {
    let rate = experiment.links[0].forward.schedule.rate[0].value;
    let share = rate.bits_per_second() / experiment.flows.len() as u64;
    let lived = at.min(flow.stop).saturating_since(flow.start);
    Bytes::new((share as f64 / 8.0 * lived.as_secs_f64()) as u64)
}

fn flow_state(experiment: &Experiment, flow: &FlowPlan, at: Instant) -> Option<FlowState> {
    flow.cc()?;
    let received = received(experiment, flow, at);
    let base_rtt = experiment.mean_base_rtt(flow, flow.start, at.max(flow.start));
    Some(FlowState {
        id: flow.id,
        since: flow.start,
        until: at.min(flow.stop).max(flow.start),
        received,
        cwnd_packets: 10 + (at.as_nanos() / 100_000_000 % 90) as u32,
        ssthresh_packets: None,
        srtt_us: Some(base_rtt.as_micros() + 1_000),
        ack_rtts: None,
        inflight_packets: 10,
        retransmits: received.as_u64() / 10_000_000,
        pacing_rate_bps: None,
        state: CongestionState::Open,
    })
}

fn flow_end(state: &FlowState) -> FlowEnd {
    FlowEnd {
        id: state.id,
        at: state.until,
        received: state.received,
        retransmits: state.retransmits,
        sent_packets: state.received.as_u64() / 1_448,
        completed: None,
        base_rtt: None,
    }
}

/// Counters of all links: in both directions, each link delivers the bytes that all flows receive.
fn link_stats(experiment: &Experiment, at: Instant) -> impl Iterator<Item = LinkStats> {
    let carried: u64 = experiment
        .flows
        .iter()
        .filter(|flow| flow.cc().is_some())
        .map(|flow| received(experiment, flow, at).as_u64())
        .sum();
    let stats = LinkStats {
        delivered_bytes: Bytes::new(carried),
        transmitted_bytes: Bytes::new(carried),
        backlog_packets: 3,
        backlog_bytes: LARGEST_PACKET,
        ..LinkStats::default()
    };
    std::iter::repeat_n(stats, 2 * experiment.links.len())
}

/// A flow's transaction with this number, if it is complete by `at`. A probe has one per interval, of which every
/// hundredth is lost; other applications have ten per second, of which every fiftieth fails.
fn transaction(
    experiment: &Experiment,
    flow: &FlowPlan,
    at: Instant,
    number: u64,
) -> Option<Transaction> {
    let rtt = experiment.mean_base_rtt(flow, flow.start, flow.stop);
    let ms = Duration::from_millis(1);
    let (interval, took, sent, answered, is_answered) = match flow.traffic.app() {
        App::Probe(Probe { interval, size }) => {
            (*interval, rtt + ms, *size, *size, number % 100 != 99)
        }
        app => {
            app.table()?;
            let took = rtt + ms * (1 + number % 40);
            (ms * 100, took, Bytes::new(300), Bytes::new(10_000), number % 50 != 49)
        }
    };
    let due = flow.start + interval * number;
    (due + took <= at.min(flow.stop)).then(|| Transaction {
        connection: 0,
        number,
        due,
        sent,
        answered: if is_answered { answered } else { Bytes::ZERO },
        connect: (number == 0).then_some(rtt),
        first_byte: is_answered.then_some(took),
        took: is_answered.then_some(took),
        detail: Detail::None,
    })
}
