//! Precomputed paths of LeoEM, with a line per second:
//! `cycle$[node ids]$node count$[one-way delays in s]$their sum`, or `cycle$NULL` without a path.

use skyhop_model::{Compat, Relay};
use std::io::BufRead;

use skyhop_units::{Duration, Instant, Quoted, UtcInstant};

use super::lines::{ImportError, Lines, parse_number};
use crate::events::{EventRules, LinkTeardown};
use crate::outage::{OutageModel, default_intermediate_outage};
use crate::trace::{
    BetweenFrames, Endpoint, Frame, NODE_FROM, NODE_TO, PathHeader, PathTrace, SCHEMA_VERSION,
};

/// Time between two lines.
const STEP: Duration = Duration::from_secs(1);
/// Number of satellites in the published logs: 24 planes of 66.
const SATELLITES: u32 = 1584;
/// Tolerance of a line's sum: delays and sum are printed with all digits.
const SUM_TOLERANCE_S: f64 = 1e-12;

/// Properties of the path that a log does not contain.
#[derive(Debug, Clone, PartialEq)]
pub struct LeoemLogOptions {
    /// End with the node id -1 in the log.
    pub from: Endpoint,
    /// End with the node id -2 in the log.
    pub to: Endpoint,
    /// Model of the outages of end handovers.
    pub outage: OutageModel,
    /// Outages of links in the middle of the path.
    pub intermediate_outage: Duration,
    /// UTC of the first line, if known.
    pub start: Option<UtcInstant>,
}

impl Default for LeoemLogOptions {
    /// Default options: ends named "from" and "to", LeoEM's outages, unknown start.
    fn default() -> Self {
        let [from, to] = ["from", "to"].map(Endpoint::named);
        let intermediate_outage = default_intermediate_outage(Compat::Leoem);
        Self { from, to, outage: OutageModel::Leoem, intermediate_outage, start: None }
    }
}

/// Parse a LeoEM log.
///
/// Events are derived by the rules of LeoEM's emulator, and delays stay constant until the next
/// line, as in the emulator.
///
/// # Errors
/// The log cannot be read, a line is damaged (with its number), cycles are not consecutive from 1,
/// or no line has a path.
pub fn parse_leoem_log(
    log: impl BufRead,
    options: &LeoemLogOptions,
) -> Result<PathTrace, ImportError> {
    let rules = EventRules {
        outage: options.outage,
        intermediate_outage: options.intermediate_outage,
        teardown: LinkTeardown::AllAsLeoem,
        seed: 0,
    };
    let mut frames: Vec<Frame> = Vec::new();
    let mut lines = Lines::new(log);
    while let Some(line) = lines.next()? {
        let mut frame = parse_line(line.text, line.number).map_err(|what| line.wrong(what))?;
        frame.events = rules.between(frames.last(), &frame);
        frames.push(frame);
    }
    let trace = PathTrace { header: header(options, &frames), frames };
    trace.validate()?;
    Ok(trace)
}

fn header(options: &LeoemLogOptions, frames: &[Frame]) -> PathHeader {
    let over_gateways =
        frames.iter().flat_map(|frame| &frame.nodes).any(|node| *node >= SATELLITES as i32);
    let relay = if over_gateways { Relay::BentPipe } else { Relay::Isl };
    PathHeader {
        schema: SCHEMA_VERSION,
        source: "import leoem".to_owned(),
        from: options.from.clone(),
        to: options.to.clone(),
        constellation: Some("leoem-starlink".to_owned()),
        satellites: SATELLITES,
        relay: Some(relay.to_string()),
        handover: Some("leoem".to_owned()),
        outage: Some(options.outage.to_string()),
        compat: Some(Compat::Leoem.to_string()),
        start: options.start,
        duration_ns: (STEP * frames.len() as u64).as_nanos(),
        period_ns: None,
        step_ns: STEP.as_nanos(),
        between_frames: BetweenFrames::Step,
        seed: 0,
        access: None,
        dish: None,
        in_order: false,
        directed: false,
        origin: None,
        sites: Vec::new(),
    }
}

/// Parse a line into a frame; the error describes what is wrong with the line.
fn parse_line(text: &str, line: usize) -> Result<Frame, String> {
    let fields: Vec<&str> = text.split('$').collect();
    let cycle = parse_number::<u64>(fields[0], "the cycle number")?;
    if cycle != line as u64 {
        return Err(format!("cycle {cycle}, but cycles are consecutive: expected {line}"));
    }
    let at = Instant::START + STEP * (cycle - 1);
    let (nodes, hop_delays) = match fields[..] {
        [_, "NULL"] => (Vec::new(), Vec::new()),
        [_, nodes, count, delays, sum] => parse_route(nodes, count, delays, sum)?,
        _ => {
            return Err(format!(
                "{} fields, expected cycle$[nodes]$count$[delays]$sum or cycle$NULL; is it truncated?",
                fields.len()
            ));
        }
    };
    let delay = (!nodes.is_empty()).then(|| hop_delays.iter().copied().sum());
    Ok(Frame { at, nodes, hop_delays, delay, delay_back: delay, ..Frame::default() })
}

fn parse_route(
    nodes: &str,
    count: &str,
    delays: &str,
    sum: &str,
) -> Result<(Vec<i32>, Vec<Duration>), String> {
    let nodes: Vec<i32> = parse_list(nodes, "the node list")?;
    let delays_s: Vec<f64> = parse_list(delays, "the delay list")?;
    let count: usize = parse_number(count, "the node count")?;
    let sum_s: f64 = parse_number(sum, "the sum of the delays")?;
    if nodes.len() != count || delays_s.len() + 1 != count || count < 3 {
        let (nodes, delays) = (nodes.len(), delays_s.len());
        return Err(format!(
            "{nodes} nodes and {delays} delays for a node count of {count}; expected as many nodes \
             (3 or more) and one delay fewer"
        ));
    }
    if nodes[0] != NODE_FROM || nodes[count - 1] != NODE_TO {
        return Err("the nodes do not go from -1 to -2".to_owned());
    }
    if nodes[1..count - 1].iter().any(|node| *node < 0) {
        return Err("a node between the ends is negative".to_owned());
    }
    if let Some(delay_s) = delays_s.iter().find(|delay_s| !(0.0..=10.0).contains(*delay_s)) {
        return Err(format!("a delay of {delay_s} s; expected 0 to 10 s"));
    }
    let total_s: f64 = delays_s.iter().sum();
    if (total_s - sum_s).abs() > SUM_TOLERANCE_S || sum_s.is_nan() {
        return Err(format!(
            "the delays add up to {total_s} s, but the sum says {sum_s}; is it truncated?"
        ));
    }
    Ok((nodes, delays_s.into_iter().map(Duration::from_secs_f64).collect()))
}

fn parse_list<T: std::str::FromStr>(text: &str, what: &str) -> Result<Vec<T>, String> {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .ok_or_else(|| format!("{what} is not in brackets: {}", Quoted(text)))?;
    inner.split(',').map(|number| parse_number(number, what)).collect()
}
