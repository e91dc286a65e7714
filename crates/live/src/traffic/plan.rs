//! The experiment's flows as the traffic that makes them, each with a place of its own.

use skyhop_experiment::{Experiment, Traffic, seed_for};
use skyhop_model::End;
use skyhop_units::{Duration, Instant, Rate};

use super::Addresses;
use super::probe::ProbePlan;
use super::tcp::TcpPlan;
use crate::kernel_cc::LoadedModules;
use skyhop_host::error::HostError;

/// All traffic of a run. Place 0 is the timing_probe's.
#[derive(Debug)]
pub(crate) struct TrafficPlan {
    /// The engine's own probe, which finds out how far the machine lags behind the link.
    pub(crate) timing_probe: ProbePlan,
    pub(crate) probes: Vec<ProbePlan>,
    pub(crate) flows: Vec<TcpPlan>,
    flow_ids: Vec<Option<u32>>,
}

impl TrafficPlan {
    /// The traffic of `experiment`; where a program makes it, that of its probes only.
    ///
    /// What the kernel lacks for it goes into `modules`.
    pub(crate) fn new(
        experiment: &Experiment,
        with_program: bool,
        modules: &mut LoadedModules,
    ) -> Result<Self, HostError> {
        let mut plan = Self {
            timing_probe: timing_probe(experiment),
            probes: Vec::new(),
            flows: Vec::new(),
            flow_ids: vec![None],
        };
        let end = Instant::START + experiment.duration;
        for flow in &experiment.flows {
            let index = plan.flow_ids.len();
            plan.flow_ids.push(Some(flow.id));
            let (id, from, start, stop) = (flow.id, flow.from, flow.start, flow.stop.min(end));
            match &flow.traffic {
                Traffic::Tcp { .. } if with_program => {}
                Traffic::Tcp { cc, app, options, parameters } => plan.flows.push(TcpPlan {
                    id,
                    index,
                    from,
                    start,
                    stop,
                    cc: cc.clone(),
                    kernel_cc: modules.kernel_name(cc, parameters)?,
                    app: app.clone(),
                    options: *options,
                    seed: seed_for(experiment.seed, &format!("app {id}")),
                    addresses: match flow.crosses(experiment.path_link()) {
                        true => Addresses::Path,
                        false => Addresses::Elsewhere,
                    },
                }),
                Traffic::Probe { interval, size } => {
                    let (interval, size) = (*interval, size.as_u64());
                    let payload_bytes = size as usize;
                    let probe = ProbePlan { id, index, from, start, stop, interval, payload_bytes };
                    plan.probes.push(probe);
                }
            }
        }
        Ok(plan)
    }

    /// Flow ids by place.
    pub(crate) fn flow_ids(&self) -> Vec<Option<u32>> {
        self.flow_ids.clone()
    }
}

/// Fifty packets per second where that is next to nothing of the rate, ten elsewhere.
fn timing_probe(experiment: &Experiment) -> ProbePlan {
    let path = &experiment.links[usize::from(experiment.path_link())];
    let slowest = [&path.forward, &path.back]
        .into_iter()
        .flat_map(|config| config.schedule.rate.iter().map(|piece| piece.value))
        .min();
    let fast = slowest.is_some_and(|rate| rate >= Rate::from_bits_per_second(10_000_000));
    let interval = Duration::from_millis(if fast { 20 } else { 100 });
    ProbePlan {
        id: u32::MAX,
        index: 0,
        from: End::From,
        start: Instant::START,
        stop: Instant::NEVER,
        interval,
        payload_bytes: 64,
    }
}
