//! Links built over their paths.

use std::sync::Arc;

use skyhop_experiment::{FlowPlan, LinkPlan, QueueSize, seed_for};
use skyhop_link::{Limit, Link, LinkConfig, LinkSchedule};
use skyhop_model::{Direction, LARGEST_PACKET, PATH_LINK};
use skyhop_path::{Endpoint, PathTrace};
use skyhop_units::{Duration, Instant, QueueLimit, Rate};

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::plan::change::with_rtts;
use crate::plan::hops::Hop;
use crate::plan::path::Progress;
use crate::plan::places::FindPlace;
use crate::plan::schedule::{DirectionSettings, link_schedule};
use crate::types::{Change, ExtraLink, LinkKeys, LinkSection, PathSection, Scenario};

/// Description of a link, from which both directions are built.
struct LinkSpec<'a> {
    name: &'a str,
    /// Key of the link's section, such as `link`; used in errors and to derive the seed of the random draws.
    key: String,
    section: &'a LinkSection,
    /// Section of the path that the link follows.
    path: &'a PathSection,
    changes: Vec<Change>,
}

impl NamedScenario {
    /// Build all links; `path` is the path of `[path]`, and `hops` are its hops with their own queues, if
    /// any.
    pub(crate) fn links(
        &self,
        path: Arc<PathTrace>,
        hops: &[Hop],
        flows: &[FlowPlan],
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Vec<LinkPlan>, ScenarioError> {
        let mut traces = vec![path];
        for (name, link) in &self.scenario.links {
            let trace = self
                .with_path_of(link)?
                .path(find_place, progress)
                .map_err(|error| error.under(&format!("links.{name}")))?;
            traces.push(with_rtts(Arc::new(trace), &self.changes_of(name)));
        }
        // The trace of the link "path" has the delay of all hops, so that the traces of the other
        // hops have none.
        let ends = ["from", "to"].map(Endpoint::named);
        let none = Arc::new(PathTrace::fixed(ends, Duration::ZERO, self.scenario.run.duration));
        traces.extend(hops.iter().skip(1).map(|_| Arc::clone(&none)));
        // The BDP of a link in `[links]` depends on the base RTT of whole routes; that of the path's link
        // only on the path's own base RTT. Both are means over whole paths, not over the run.
        let mut base_rtts = vec![traces[0].whole_mean_base_rtt()];
        base_rtts.extend((1..traces.len()).map(|n| longest_base_rtt(&traces, flows, n)));
        let path_rtt = base_rtts[0];
        let section = self.path_section()?;
        let built = traces.into_iter().zip(base_rtts).zip(self.specs(section));
        let mut links = built
            .map(|((trace, base_rtt), spec)| {
                let hop = hops.first().filter(|_| spec.name == PATH_LINK);
                let over = hop.map_or(&*trace, |hop| &hop.trace);
                let both = |direction| {
                    let (mut config, size) = self.link(&spec, over, base_rtt, direction)?;
                    if let Some(hop) = hop {
                        hop.complete(&mut config.schedule, spec.section.end_rate);
                    }
                    Ok::<_, ScenarioError>((config, size))
                };
                let (forward, back) = (both(Direction::Forward)?, both(Direction::Back)?);
                Ok(link_plan(spec.name, trace, forward, back))
            })
            .collect::<Result<Vec<_>, ScenarioError>>()?;
        for (hop, number) in hops.iter().zip(1..).skip(1) {
            links.push(self.later_hop_link(hop, number, path_rtt, &none)?);
        }
        Ok(links)
    }

    /// Build the link of a hop after the first. Only the first hop's link has the path's trace,
    /// with the delay of all hops.
    fn later_hop_link(
        &self,
        hop: &Hop,
        number: usize,
        path_rtt: Duration,
        trace: &Arc<PathTrace>,
    ) -> Result<LinkPlan, ScenarioError> {
        let (path, link) = (self.path_section()?, &self.scenario.link);
        let name = format!("{PATH_LINK}.{number}");
        // Random loss applies once, at the first hop.
        let mut section = link.clone();
        section.keys.loss = None;
        section.back.iter_mut().for_each(|back| back.loss = None);
        let key = format!("link {number}");
        let spec = LinkSpec { name: &name, key, section: &section, path, changes: vec![] };
        let both = |direction| {
            let (mut config, size) = self.link(&spec, &hop.trace, path_rtt, direction)?;
            hop.complete(&mut config.schedule, link.end_rate);
            Ok::<_, ScenarioError>((config, size))
        };
        let (forward, back) = (both(Direction::Forward)?, both(Direction::Back)?);
        Ok(link_plan(&name, Arc::clone(trace), forward, back))
    }

    /// Descriptions of `[link]` and `[links]`, in the order of link numbers; `path` is the section `[path]`.
    fn specs<'a>(&'a self, path: &'a PathSection) -> impl Iterator<Item = LinkSpec<'a>> {
        let Scenario { link, links, .. } = &self.scenario;
        let sections = links.iter().map(|(name, more)| {
            (&name[..], format!("links.{name}"), &more.link, more.path.as_ref().unwrap_or(path))
        });
        let first = (PATH_LINK, "link".to_owned(), link, path);
        [first].into_iter().chain(sections).map(|(name, key, section, path)| LinkSpec {
            name,
            key,
            section,
            path,
            changes: self.changes_of(name),
        })
    }

    /// Return the scenario with the path of one of its links in place of `[path]`.
    fn with_path_of(&self, link: &ExtraLink) -> Result<Self, ScenarioError> {
        let path = match &link.path {
            Some(path) => path.clone(),
            None => self.path_section()?.fixed(link.rtt.unwrap_or(Duration::ZERO)),
        };
        let scenario = Scenario { path: Some(path), ..self.scenario.clone() };
        Ok(Self { scenario, ..self.clone() })
    }

    /// Build one direction of a link over `trace`, which already includes the RTT changes. A queue
    /// limit in BDP is computed from `base_rtt`.
    fn link(
        &self,
        spec: &LinkSpec<'_>,
        trace: &PathTrace,
        base_rtt: Duration,
        direction: Direction,
    ) -> Result<(LinkConfig, QueueSize), ScenarioError> {
        let LinkSpec { key, section: link, path, .. } = spec;
        let own = link.back.clone().unwrap_or_default();
        let (section, rate_changes, given) = match direction {
            Direction::Forward => (key.clone(), true, link.keys.clone()),
            Direction::Back => {
                let there = LinkKeys { loss: None, dama: None, ..link.keys.clone() };
                (format!("{key}.back"), own.rate.is_none(), own.or(there))
            }
        };
        let settings = DirectionSettings {
            direction,
            given: &given,
            rate_changes,
            during_outage: path.during_outage_of(trace),
        };
        let (schedule, values) = (link_schedule(trace, &spec.changes, &settings), given.values());
        let rate = mean_rate(&schedule, trace.whole_end());
        let queue = queue_limit(values.queue, rate, base_rtt)
            .map_err(|what| self.key_error(format!("{section}.queue"), what))?;
        let config = LinkConfig {
            queue,
            qdisc: values.qdisc,
            seed: seed_for(self.scenario.run.seed, &format!("{key} {direction}")),
            schedule,
        };
        // The link is built once here, so that an invalid queue is found before anything runs.
        Link::<()>::new(config.clone())
            .map_err(|error| self.key_error(&section, error.to_string()))?;
        let varies = config.schedule.rate.len() > 1;
        Ok((config, QueueSize::new(values.queue, queue, (rate, varies), base_rtt)))
    }
}

/// Longest mean round trip without queueing of the flows' routes over a link, each with the flow's extra RTT; the
/// link's own round trip if no route crosses it.
fn longest_base_rtt(traces: &[Arc<PathTrace>], flows: &[FlowPlan], link: usize) -> Duration {
    let base_rtts: Vec<Duration> = traces.iter().map(|trace| trace.whole_mean_base_rtt()).collect();
    let rtts = flows.iter().flat_map(|flow| {
        let crossing = flow.routes.iter().filter(|route| route.links.contains(&(link as u16)));
        crossing.map(|route| {
            let links = route.links.iter().map(|link| base_rtts[usize::from(*link)]);
            links.sum::<Duration>() + flow.extra_rtt
        })
    });
    rtts.max().unwrap_or(base_rtts[link])
}

/// Build a link of both its directions.
fn link_plan(
    name: &str,
    trace: Arc<PathTrace>,
    (forward, size): (LinkConfig, QueueSize),
    (back, size_back): (LinkConfig, QueueSize),
) -> LinkPlan {
    LinkPlan { name: name.to_owned(), trace, forward, back, queues: [size, size_back] }
}

/// Mean rate of a link over the time until `end`, from which a queue in BDP or time is computed.
fn mean_rate(schedule: &LinkSchedule, end: Instant) -> Rate {
    let (mut bits, mut whole_ns) = (0_u128, 0_u128);
    for (index, piece) in schedule.rate.iter().enumerate() {
        let until = schedule.rate.get(index + 1).map_or(end, |next| next.from.min(end));
        let lasts_ns = u128::from(until.saturating_since(piece.from).as_nanos());
        bits += u128::from(piece.value.bits_per_second()) * lasts_ns;
        whole_ns += lasts_ns;
    }
    let first = schedule.rate.first().map_or(Rate::ZERO, |piece| piece.value);
    let mean_bps = bits.checked_div(whole_ns);
    mean_bps.map_or(first, |bps| Rate::from_bits_per_second(bps as u64))
}

/// Resolve a queue's limit to packets or bytes.
pub(crate) fn queue_limit(
    given: QueueLimit,
    rate: Rate,
    base_rtt: Duration,
) -> Result<Limit, String> {
    let bytes = match given {
        QueueLimit::Packets(packets) => return Ok(Limit::Packets(packets)),
        QueueLimit::Bytes(bytes) if bytes < LARGEST_PACKET => {
            return Err(format!(
                "\"{given}\" holds no packet; expected at least {LARGEST_PACKET}, a packet of 1500 B \
                 on the wire"
            ));
        }
        QueueLimit::Bytes(bytes) => bytes,
        QueueLimit::Time(time) => rate.bytes_in(time),
        QueueLimit::Bdp(factor) => rate.bytes_in(base_rtt.mul_f64(factor)),
    };
    // The BDP of a slow or short link may be less than a packet, but the queue needs room for one.
    Ok(Limit::Bytes(bytes.max(LARGEST_PACKET)))
}
