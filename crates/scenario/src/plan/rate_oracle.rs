//! True rate over time of the links that a film's flow crosses, computed from the links' schedules,
//! for players with a model or an oracle.

use std::collections::BTreeSet;
use std::sync::Arc;

use skyhop_app::{App, Dash, Predicted, RateOracle};
use skyhop_experiment::{FlowPlan, LinkPlan, Traffic};
use skyhop_link::LinkSchedule;
use skyhop_model::{LARGEST_PACKET, mss};
use skyhop_units::Instant;
use skyhop_video::RateTrace;
use skyhop_video::forecast::TransferPath;

use crate::ScenarioError;
use crate::named::NamedScenario;

impl NamedScenario {
    /// Give players with a model or an oracle the rate that the links of their flow will have.
    ///
    /// # Errors
    /// The rate is 0 throughout.
    pub(crate) fn set_rate_oracles(
        &self,
        flows: &mut [FlowPlan],
        links: &[LinkPlan],
    ) -> Result<(), ScenarioError> {
        for flow in flows {
            let truth = match film_of(flow) {
                Some(dash) if !matches!(dash.predicted, Predicted::Rates(_)) => {
                    let truth = self.transfer_path_of(flow, links);
                    truth.map_err(|what| self.key_error(self.predicted_key(flow.id), what))?
                }
                _ => continue,
            };
            if let Traffic::Tcp { app: App::Dash(dash), .. } = &mut flow.traffic {
                dash.rate_oracle = Some(RateOracle::Truth(truth));
            }
        }
        Ok(())
    }

    /// Key of the scenario in which this flow's player selects its prediction, for errors.
    fn predicted_key(&self, id: u32) -> String {
        let entry = (0..).find(|entry| self.ids_of(*entry).end > id).unwrap_or(0);
        format!("flow.{entry}.app.predicted")
    }

    /// Transfer path of a flow's film, with the rate that the film would get if there were no other traffic.
    fn transfer_path_of(
        &self,
        flow: &FlowPlan,
        links: &[LinkPlan],
    ) -> Result<TransferPath, String> {
        let duration = self.scenario.run.duration;
        let end = Instant::START + duration;
        let direction = flow.sends();
        let schedule = |link: u16| &links[usize::from(link)].config(direction).schedule;
        let starts = steps(flow, end, &schedule);
        let rates: Vec<f64> = starts.iter().map(|at| rate_at(flow, *at, &schedule)).collect();
        let starts_s: Vec<f64> =
            starts.iter().map(|at| at.saturating_since(Instant::START).as_secs_f64()).collect();
        let trace = RateTrace::new("the path", &starts_s, &rates, duration.as_secs_f64());
        let timestamps = flow.tcp_options().is_none_or(|options| options.timestamps);
        let trace_of = |link: u16| &*links[usize::from(link)].trace;
        Ok(TransferPath {
            trace: Arc::new(trace.map_err(|error| error.to_string())?),
            offset_s: 0.0,
            payload_share: f64::from(mss(timestamps)) / LARGEST_PACKET.as_u64() as f64,
            delay_s: flow.mean_base_rtt(trace_of, flow.start, flow.stop).as_secs_f64(),
        })
    }
}

/// Player of a flow that plays a film; `None` for other applications.
fn film_of(flow: &FlowPlan) -> Option<&Dash> {
    match flow.traffic.app() {
        App::Dash(dash) => Some(dash),
        _ => None,
    }
}

/// Times at which the rate of a flow's links may change; the first is the run's start.
fn steps<'l>(
    flow: &FlowPlan,
    end: Instant,
    schedule: &impl Fn(u16) -> &'l LinkSchedule,
) -> Vec<Instant> {
    let mut starts = BTreeSet::from([Instant::START]);
    for route in &flow.routes {
        starts.insert(route.from);
        for schedule in route.links.iter().map(|link| schedule(*link)) {
            starts.extend(schedule.rate.iter().map(|piece| piece.from));
            starts.extend(schedule.outages.iter().flat_map(|outage| [outage.from, outage.until]));
        }
    }
    starts.into_iter().filter(|at| *at < end).collect()
}

/// Rate of the slowest link that a flow crosses at the time `at`, in bit/s; 0 while one of the links is down.
fn rate_at<'l>(flow: &FlowPlan, at: Instant, schedule: &impl Fn(u16) -> &'l LinkSchedule) -> f64 {
    let route = flow.routes.iter().rfind(|route| route.from <= at);
    let links = route.map_or(&[][..], |route| &route.links).iter().map(|link| schedule(*link));
    let rates = links.map(|schedule| match schedule.outage_at(at) {
        Some(outage) if outage.until > outage.from => 0.0,
        _ => schedule.rate_at(at).bits_per_second() as f64,
    });
    rates.fold(f64::INFINITY, f64::min)
}
