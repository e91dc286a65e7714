//! Checks of conditions that the types cannot express.

use skyhop_app::{App, AppKind as _, Transport};
use skyhop_model::{Relay, cc_language, shipped_card_name};
use skyhop_units::{Duration, Rate, did_you_mean};

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::named::NamedScenario;
use crate::types::{
    Flow, FlowKind, JitterKeys, LinkSection, PathKind, PathSection, SignalSection, SignalSource,
};

/// Shortest run, and shortest time between samples.
pub(crate) const SHORTEST_SAMPLE: Duration = Duration::from_millis(1);

/// Longest spike of a round trip; a longer change is a [[change]].
const LONGEST_SPIKE: Duration = Duration::from_secs(60);

/// Largest `count` of a `[[flow]]` entry.
pub(crate) const MOST_FLOWS: u32 = 10_000;

/// Shortest period for blind estimation: an outage and the recovery from it take about 1 s, so that
/// closer handovers cannot be distinguished.
const SHORTEST_BLIND_PERIOD: Duration = Duration::from_secs(1);

impl NamedScenario {
    /// Check the whole scenario; the first problem is the error.
    pub(crate) fn check(&self) -> Result<(), ScenarioError> {
        let scenario = &self.scenario;
        match (&scenario.path, &scenario.network) {
            (Some(path), None) => {
                self.check_path(path, "path")?;
                if !scenario.failure.is_empty() {
                    let what = "does not go with [path]; expected a [network], or a [[change]] with an `outage`";
                    return Err(self.key_error("failure", what));
                }
            }
            (None, Some(network)) => self.check_network(network)?,
            (Some(_), Some(_)) => {
                let what = "is a second source of paths next to [path]; give one of the two";
                return Err(self.key_error("network", what));
            }
            (None, None) => return Err(self.key_error("the scenario", "missing field `path`")),
        }
        let run = &scenario.run;
        for (key, value) in [("run.duration", run.duration), ("run.sample", run.sample)] {
            if value < SHORTEST_SAMPLE {
                return Err(self.key_error(key, "is too short; expected at least 1 ms"));
            }
        }
        self.check_rates(&scenario.link, "link")?;
        if let Some(index) = scenario.change.iter().position(|change| change.at >= run.duration) {
            return Err(self.key_error(format!("change.{index}.at"), "is not before the run's end"));
        }
        if let Err((name, what)) = scenario.tcp.values().check() {
            return Err(self.key_error(format!("tcp.{name}"), what));
        }
        for (index, flow) in scenario.flow.iter().enumerate() {
            self.check_flow(flow, &format!("flow.{index}"))?;
        }
        self.check_signal(&scenario.signal)?;
        self.check_topology()?;
        self.check_forecast()?;
        self.check_size()
    }

    pub(crate) fn check_path(&self, path: &PathSection, key: &str) -> Result<(), ScenarioError> {
        let is_missing =
            |given: &Option<_>, name: &str, example: &str| match given {
                None::<String> => Err(self
                    .key_error(format!("{key}.{name}"), format!("is missing; expected {example}"))),
                Some(_) => Ok(()),
            };
        self.check_dish(path, key)?;
        if let Some(jitter) = path.kind.jitter() {
            let rtt = match &path.kind {
                PathKind::Fixed(path) => path.rtt,
                _ => None,
            };
            check_jitter(jitter, rtt)
                .map_err(|(name, what)| self.key_error(format!("{key}.jitter.{name}"), what))?;
        }
        match &path.kind {
            PathKind::Constellation(path) => {
                is_missing(&path.from, "from", "a city such as \"San Diego\" or \"lat,lon\"")?;
                is_missing(&path.to, "to", "a city such as \"New York\" or \"lat,lon\"")?;
                if path.step == Duration::ZERO {
                    let what = "is 0 s; expected a time above zero";
                    return Err(self.key_error(format!("{key}.step"), what));
                }
                if path.profile().is_some() && path.outage() != "none" {
                    let what = "has no effect: the access profile has holes of its own; remove it, or take relay = \"access\" without a profile";
                    return Err(self.key_error(format!("{key}.outage"), what));
                }
                Ok(())
            }
            PathKind::Fixed(path) => {
                let rtt = path.rtt.map(|rtt| rtt.to_string());
                is_missing(&rtt, "rtt", "a time such as \"50 ms\"")
            }
            PathKind::Trace(path) => is_missing(&path.file, "file", "the name of a path file"),
            PathKind::Access(path) => {
                is_missing(&path.profile, "profile", "a name from skyhop list access")
            }
        }
    }

    /// Check that `dish` and `access` are given only where the path has a terminal at one end.
    fn check_dish(&self, path: &PathSection, key: &str) -> Result<(), ScenarioError> {
        let why = match &path.kind {
            PathKind::Constellation(path) if path.relay.is_access() => return Ok(()),
            PathKind::Access(_) | PathKind::Trace(_) => return Ok(()),
            PathKind::Constellation(computed) => {
                let relay = computed.relay;
                if computed.access.is_some() {
                    let what = format!(
                        "has no effect with relay = \"{relay}\"; expected relay = \"starlink\" or \"access\""
                    );
                    return Err(self.key_error(format!("{key}.access"), what));
                }
                format!("with relay = \"{relay}\" both ends have a terminal")
            }
            PathKind::Fixed(_) => "a path of kind = \"fixed\" has no terminal".to_owned(),
        };
        match path.dish {
            Some(_) => {
                let what = format!("has no effect: {why}; remove it, or take relay = \"starlink\"");
                Err(self.key_error(format!("{key}.dish"), what))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn check_rates(&self, link: &LinkSection, key: &str) -> Result<(), ScenarioError> {
        let back = link.back.as_ref().and_then(|back| back.rate);
        for (rate, name) in [(link.keys.rate, "rate"), (back, "back.rate")] {
            if rate == Some(Rate::ZERO) {
                let what = "is 0; expected a rate such as \"150 Mbit/s\"";
                return Err(self.key_error(format!("{key}.{name}"), what));
            }
        }
        Ok(())
    }

    pub(crate) fn check_flow(&self, flow: &Flow, key: &str) -> Result<(), ScenarioError> {
        let wrong = |name: &str, what: String| Err(self.key_error(format!("{key}{name}"), what));
        let (common, run) = (&flow.common, self.scenario.run.duration);
        if common.start >= run {
            return wrong(".start", format!("is {}, but the run ends at {run}", common.start));
        }
        if common.stop.is_some_and(|stop| stop <= common.start) {
            return wrong(".stop", format!("is not after the flow's start at {}", common.start));
        }
        if common.count > MOST_FLOWS {
            return wrong(".count", format!("is {}; expected at most {MOST_FLOWS}", common.count));
        }
        match &flow.kind {
            FlowKind::Tcp(tcp) => {
                if common.stop.is_some() && tcp.app().bytes().is_some() {
                    return wrong("", "has both stop and bytes; give one".to_owned());
                }
                if tcp.bytes.is_some_and(|bytes| bytes.as_u64() == 0) {
                    return wrong(".bytes", "is 0; expected a size such as \"10 MB\"".to_owned());
                }
                if tcp.bytes.is_some()
                    && !matches!(&tcp.app, App::Bulk(bulk) if bulk.bytes.is_none())
                {
                    let what =
                        "is for a bulk transfer, but the flow's `app` is another; remove one";
                    return wrong(".bytes", what.to_owned());
                }
                if tcp.app.transport() != Transport::Stream {
                    let what = "is \"NAME\", which does not run over TCP; write kind = \"NAME\" in place of `app`, \
                                with its keys next to it in the flow";
                    return wrong(".app.kind", what.replace("NAME", tcp.app.name()));
                }
                if let Err((name, what)) = tcp.app.check() {
                    return wrong(&format!(".app.{name}"), what);
                }
                self.with_files(tcp.app(), &format!("{key}.app"))?;
                let options =
                    tcp.own_tcp(&self.scenario.tcp).or(self.scenario.tcp.clone()).values();
                if let Err((name, what)) = options.check() {
                    return wrong(&format!(".tcp.{name}"), what);
                }
                self.check_cc_file(&tcp.cc, key)?;
                let cc = skyhop_model::cc_table(&tcp.cc);
                if let Some(name) = flow.parameters.keys().find(|name| *name != cc) {
                    let hint = did_you_mean(name, [cc, "app", "tcp", "policy"]);
                    let what = format!(
                        "is neither a key of a flow nor its congestion control ({cc}){hint}"
                    );
                    return wrong(&format!(".{name}"), what);
                }
            }
            FlowKind::Probe(probe) => {
                if let Err((name, what)) = probe.check() {
                    return wrong(&format!(".{name}"), what);
                }
            }
            FlowKind::Call(call) => {
                if let Err((name, what)) = call.check() {
                    return wrong(&format!(".{name}"), what);
                }
            }
        }
        Ok(())
    }

    fn check_cc_file(&self, cc: &str, key: &str) -> Result<(), ScenarioError> {
        if let Some(card) = shipped_card_name(cc) {
            let ours = skyhop_ccfile::policy_cards();
            if ours.iter().all(|(name, _)| *name != card) {
                let hint = did_you_mean(card, ours.iter().map(|(name, _)| *name));
                let what = format!("skyhop has no card {card}{hint}: see skyhop policy list");
                return Err(self.key_error(format!("{key}.cc"), what));
            }
        } else if cc_language(cc).is_some() && find_file(self.base(), cc).is_none() {
            let what = format!(
                "there is no file \"{cc}\", neither relative to the scenario nor in the current directory"
            );
            return Err(self.key_error(format!("{key}.cc"), what));
        }
        Ok(())
    }

    fn check_signal(&self, signal: &SignalSection) -> Result<(), ScenarioError> {
        let timing = self.timing()?;
        if signal.source == SignalSource::Blind && signal.period < SHORTEST_BLIND_PERIOD {
            let what = format!(
                "is {}; expected at least {SHORTEST_BLIND_PERIOD} to find a grid by source = \"blind\"",
                signal.period
            );
            return Err(self.key_error("signal.period", what));
        }
        if signal.period == Duration::ZERO {
            let what = "is 0 s; expected a time such as \"15 s\"";
            return Err(self.key_error("signal.period", what));
        }
        let on_a_grid = matches!(signal.source, SignalSource::Schedule | SignalSource::Blind);
        if !on_a_grid {
            return Ok(());
        }
        for (key, time) in
            [("signal.error", timing.unknown.error.constant()), ("signal.latency", timing.latency)]
        {
            if time >= signal.period {
                let what = format!(
                    "is as long as the period of {}, so that announcements carry no information; expected less",
                    signal.period
                );
                return Err(self.key_error(key, what));
            }
        }
        for (key, keys) in
            [("signal.end", &signal.end), ("signal.intermediate", &signal.intermediate)]
        {
            if keys.is_some() {
                let what = "is for source = \"path\" and \"forecast\": a grid does not tell the kinds of handovers";
                return Err(self.key_error(key, what));
            }
        }
        Ok(())
    }

    /// Check that the path is computed from orbits if `signal.source` is "forecast", and that
    /// `signal.elements` is given only then.
    fn check_forecast(&self) -> Result<(), ScenarioError> {
        let (signal, path) = (&self.scenario.signal, &self.scenario.path);
        match (signal.source, path.as_ref().map(|path| &path.kind)) {
            (SignalSource::Forecast, Some(PathKind::Constellation(path)))
                if path.relay != Relay::Geo =>
            {
                Ok(())
            }
            (SignalSource::Forecast, _) => {
                let what = "a forecast needs orbits; expected a path of kind = \"constellation\" with a relay other \
                            than \"geo\"";
                Err(self.key_error("signal.source", what))
            }
            _ if signal.elements.is_some() => {
                Err(self.key_error("signal.elements", "is for source = \"forecast\" alone"))
            }
            _ => Ok(()),
        }
    }
}

/// Check a jitter; `rtt` is the path's round trip, if the scenario gives it.
fn check_jitter(jitter: &JitterKeys, rtt: Option<Duration>) -> Result<(), (&'static str, String)> {
    if jitter.every < SHORTEST_SAMPLE {
        return Err(("every", "is too short; expected at least 1 ms".to_owned()));
    }
    if let Some(rtt) = rtt.filter(|rtt| jitter.below > *rtt) {
        return Err(("below", format!("is {}, more than the round trip of {rtt}", jitter.below)));
    }
    if jitter.spike_to < jitter.spike_from {
        return Err(("spike_to", format!("is less than spike_from, {}", jitter.spike_from)));
    }
    if jitter.spike_lasts > LONGEST_SPIKE {
        return Err(("spike_lasts", format!("is too long; expected at most {LONGEST_SPIKE}")));
    }
    Ok(())
}
