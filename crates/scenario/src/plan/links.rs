//! Links over their paths.

use skyhop_experiment::{FlowPlan, LinkPlan, seed_for};
use skyhop_link::{Link, LinkConfig, LinkSchedule};
use skyhop_model::{Direction, DuringOutage, LARGEST_PACKET, PATH_LINK};
use skyhop_path::PathTrace;
use skyhop_units::{Duration, Instant, QueueLimit, Rate};

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::plan::change::apply_rtt;
use crate::plan::path::Progress;
use crate::plan::path_request::FindPlace;
use crate::plan::schedule::{DirectionSettings, link_schedule};
use crate::types::{Change, ExtraLink, LinkKeys, LinkSection, Scenario};

/// What the two directions of a link are built from.
struct LinkSpec<'a> {
    /// The section's key, for errors and as the component's name.
    key: &'a str,
    section: &'a LinkSection,
    during_outage: DuringOutage,
    /// Has the changes' round trips already.
    trace: &'a PathTrace,
    changes: &'a [Change],
    /// What BDP counts.
    base_rtt: Duration,
}

impl NamedScenario {
    /// Builds all links; `path` is the path of `[path]`.
    pub(crate) fn links(
        &self,
        path: PathTrace,
        flows: &[FlowPlan],
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Vec<LinkPlan>, ScenarioError> {
        let mut traces = vec![path];
        for (name, link) in &self.scenario.links {
            let mut trace = self
                .with_path_of(link)
                .path(find_place, progress)
                .map_err(|error| error.under(&format!("links.{name}")))?;
            apply_rtt(&mut trace, &self.changes_of(Some(name)));
            traces.push(trace);
        }
        // What BDP counts depends on all links of the flows' routes; on `[path]` it is the link's own.
        let end = Instant::START + self.scenario.run.duration;
        let mut base_rtts = vec![traces[0].mean_base_rtt(Instant::START, end)];
        base_rtts.extend((1..traces.len()).map(|n| self.longest_base_rtt(&traces, flows, n)));
        let built = traces.into_iter().zip(base_rtts).zip(self.sections());
        built
            .map(|((trace, base_rtt), (name, key, section, during_outage))| {
                let changes = &self.changes_of(Some(name).filter(|name| *name != PATH_LINK));
                let (key, trace_ref) = (&key[..], &trace);
                let spec =
                    LinkSpec { key, section, during_outage, trace: trace_ref, changes, base_rtt };
                let forward = self.link(&spec, Direction::Forward)?;
                let back = self.link(&spec, Direction::Back)?;
                Ok(LinkPlan { name: name.to_owned(), trace, forward, back })
            })
            .collect()
    }

    /// `[link]` and `[links]`, in the order in which links are numbered: the link's name, its section's
    /// key, the section, and what an outage of its path does.
    fn sections(&self) -> impl Iterator<Item = (&str, String, &LinkSection, DuringOutage)> {
        let Scenario { path, link, links, .. } = &self.scenario;
        let first = (PATH_LINK, "link".to_owned(), link, path.during_outage);
        let more = links.iter().map(|(name, link)| {
            let own_path = link.path.as_ref().unwrap_or(path);
            (&name[..], format!("links.{name}"), &link.link, own_path.during_outage)
        });
        [first].into_iter().chain(more)
    }

    /// The longest round trip without queueing among the flows that ever cross a link, over the
    /// run; the link's own where no flow does.
    fn longest_base_rtt(&self, traces: &[PathTrace], flows: &[FlowPlan], link: usize) -> Duration {
        let end = Instant::START + self.scenario.run.duration;
        let crosses = |flow: &&FlowPlan| flow.crosses(link as u16);
        let trace_of = |link: u16| &traces[usize::from(link)];
        let rtts = flows
            .iter()
            .filter(crosses)
            .map(|flow| flow.mean_base_rtt(trace_of, Instant::START, end));
        rtts.max().unwrap_or_else(|| traces[link].mean_base_rtt(Instant::START, end))
    }

    /// The same scenario with the path of one of its links in the place of `[path]`.
    fn with_path_of(&self, link: &ExtraLink) -> Self {
        let path = match &link.path {
            Some(path) => path.clone(),
            None => self.scenario.path.fixed(link.rtt.unwrap_or(Duration::ZERO)),
        };
        Self { scenario: Scenario { path, ..self.scenario.clone() }, ..self.clone() }
    }

    /// One direction of a link.
    fn link(&self, plan: &LinkSpec<'_>, direction: Direction) -> Result<LinkConfig, ScenarioError> {
        let (key, own) = (plan.key, plan.section.back.clone().unwrap_or_default());
        let (section, component, rate_changes, given) = match direction {
            Direction::Forward => {
                (key.to_owned(), format!("{key} forward"), true, plan.section.keys.clone())
            }
            Direction::Back => {
                let there = LinkKeys { loss: None, ..plan.section.keys.clone() };
                let rate_changes = own.rate.is_none();
                (format!("{key}.back"), format!("{key} back"), rate_changes, own.or(there))
            }
        };
        let (rate_given, loss_given) = (given.rate.is_some(), given.loss.is_some());
        let link = given.values();
        let settings = DirectionSettings {
            direction,
            rate: link.rate,
            rate_given,
            loss: link.loss,
            loss_given,
            rate_changes,
            loss_changes: direction == Direction::Forward,
            during_outage: plan.during_outage,
        };
        let schedule = link_schedule(plan.trace, plan.changes, &settings);
        let config = LinkConfig {
            queue: queue_limit(link.queue, &schedule, plan.base_rtt)
                .map_err(|what| self.wrong(format!("{section}.queue"), what))?,
            qdisc: link.qdisc,
            seed: seed_for(self.scenario.run.seed, &component),
            schedule,
        };
        // Built once here, so that a wrong queue is found before anything runs.
        Link::<()>::new(config.clone()).map_err(|error| self.wrong(&section, error.to_string()))?;
        Ok(config)
    }
}

/// A queue's limit in packets or bytes. BDP and time count the first rate that is not zero.
fn queue_limit(
    given: QueueLimit,
    schedule: &LinkSchedule,
    base_rtt: Duration,
) -> Result<QueueLimit, String> {
    let rate = schedule.rate.iter().map(|piece| piece.value).find(|rate| *rate > Rate::ZERO);
    match (given, given.resolve(rate.unwrap_or(Rate::ZERO), base_rtt)) {
        (QueueLimit::Bytes(_), QueueLimit::Bytes(bytes)) if bytes < LARGEST_PACKET => Err(format!(
            "\"{given}\" holds no packet; expected at least {LARGEST_PACKET}, a packet of 1500 B on \
             the wire"
        )),
        // A slow or short link has less than a packet in flight, but needs room for one.
        (_, QueueLimit::Bytes(bytes)) => Ok(QueueLimit::Bytes(bytes.max(LARGEST_PACKET))),
        (_, resolved) => Ok(resolved),
    }
}
