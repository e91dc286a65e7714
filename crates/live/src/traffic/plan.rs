//! Traffic of an experiment: its flows, each with an index that determines its port.

use skyhop_app::{App, FlowFacts, Probe};
use skyhop_experiment::{Experiment, Traffic, seed_for};
use skyhop_model::{Dscp, End};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use super::Addresses;
use super::tcp::TcpPlan;
use super::udp::UdpPlan;
use crate::kernel_cc::LoadedModules;
use skyhop_host::error::HostError;

/// All traffic of a run. Index 0 is the timing probe's.
#[derive(Debug)]
pub(crate) struct TrafficPlan {
    /// Plan of the engine's own probe, which measures how late the machine delivers packets.
    pub(crate) timing_probe: UdpPlan,
    pub(crate) udp_flows: Vec<UdpPlan>,
    pub(crate) flows: Vec<TcpPlan>,
    flow_ids: Vec<Option<u32>>,
}

impl TrafficPlan {
    /// Build the traffic of `experiment`; with a program, its UDP flows only.
    ///
    /// The flows' congestion controls are loaded into `modules`.
    pub(crate) fn new(
        experiment: &Experiment,
        with_program: bool,
        modules: &mut LoadedModules,
    ) -> Result<Self, HostError> {
        let mut plan = Self {
            timing_probe: timing_probe(experiment),
            udp_flows: Vec::new(),
            flows: Vec::new(),
            flow_ids: vec![None],
        };
        let end = Instant::START + experiment.duration;
        for flow in &experiment.flows {
            let index = plan.flow_ids.len();
            plan.flow_ids.push(Some(flow.id));
            let (id, from, start, stop) = (flow.id, flow.from, flow.start, flow.stop.min(end));
            let seed = seed_for(experiment.seed, &format!("app {id}"));
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
                    dscp: flow.dscp,
                    seed,
                    addresses: match flow.crosses(experiment.path_link()) {
                        true => Addresses::Path,
                        false => Addresses::Elsewhere,
                    },
                }),
                Traffic::Udp { app } => {
                    let (app, facts) = (app.clone(), FlowFacts { seed, start, stop });
                    let dscp = flow.dscp;
                    plan.udp_flows.push(UdpPlan { id, index, from, app, dscp, facts });
                }
            }
        }
        Ok(plan)
    }

    /// Flow ids by index of the traffic; `None` for the timing probe.
    pub(crate) fn flow_ids(&self) -> Vec<Option<u32>> {
        self.flow_ids.clone()
    }
}

/// Plan the timing probe: 50 packets per second where the slowest rate is at least 10 Mbit/s, else 10 per second,
/// so that its share of the rate is negligible.
fn timing_probe(experiment: &Experiment) -> UdpPlan {
    let path = &experiment.links[usize::from(experiment.path_link())];
    let slowest = [&path.forward, &path.back]
        .into_iter()
        .flat_map(|config| config.schedule.rate.iter().map(|piece| piece.value))
        .min();
    let fast = slowest.is_some_and(|rate| rate >= Rate::from_bits_per_second(10_000_000));
    let interval = Duration::from_millis(if fast { 20 } else { 100 });
    UdpPlan {
        id: u32::MAX,
        index: 0,
        from: End::From,
        app: App::Probe(Probe { interval, size: Bytes::new(64) }),
        dscp: Dscp::default(),
        facts: FlowFacts { seed: 0, start: Instant::START, stop: Instant::NEVER },
    }
}
