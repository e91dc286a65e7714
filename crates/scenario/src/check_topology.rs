//! Checks of links, of the flows' routes over them, and of changes.

use std::collections::BTreeSet;

use skyhop_model::PATH_LINK;
use skyhop_units::did_you_mean;

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::types::{Change, ExtraLink, Queues, Scenario, SignalSource};

/// Largest number of links in addition to that of `[path]`.
const MOST_LINKS: usize = 1000;

impl NamedScenario {
    /// Check conditions on `[links]`, `[[change]]` and `flow.via` that the types cannot express.
    pub(crate) fn check_topology(&self) -> Result<(), ScenarioError> {
        let scenario = &self.scenario;
        if scenario.links.len() > MOST_LINKS {
            let what = format!("are {}; expected at most {MOST_LINKS}", scenario.links.len());
            return Err(self.key_error("links", what));
        }
        self.check_queues()?;
        for (name, link) in &scenario.links {
            self.check_link(name, link)?;
        }
        for (index, flow) in scenario.flow.iter().enumerate() {
            self.check_via(&flow.common.via, &format!("flow.{index}.via"))?;
            if flow.common.between.is_some() && scenario.network.is_none() {
                let what =
                    "is for scenarios with [network]; over [path] and [links], a flow has `via`";
                return Err(self.key_error(format!("flow.{index}.between"), what));
            }
        }
        for (index, change) in scenario.change.iter().enumerate() {
            self.check_change(change, &format!("change.{index}"))?;
        }
        Ok(())
    }

    /// Check that per-hop queues are not combined with features that do not support separate hops.
    fn check_queues(&self) -> Result<(), ScenarioError> {
        let Scenario { link, signal, .. } = &self.scenario;
        if link.queues == Queues::Path {
            return match link.end_rate {
                None => Ok(()),
                Some(_) => Err(self.key_error("link.end_rate", "goes with queues = \"per-hop\"")),
            };
        }
        let no = |why: &str| Err(self.key_error("link.queues", format!("\"per-hop\" {why}")));
        if !self.changes_of(PATH_LINK).is_empty() {
            return no("goes with no [[change]] of the path");
        }
        let back = link.back.as_ref().and_then(|back| back.dama.as_ref());
        if link.keys.dama.as_ref().or(back).is_some() {
            return no(
                "does not go with link.dama: a path has one return channel, not one at each hop",
            );
        }
        if signal.source == SignalSource::Blind {
            return no("does not go with signal.source = \"blind\"");
        }
        Ok(())
    }

    fn check_link(&self, name: &str, link: &ExtraLink) -> Result<(), ScenarioError> {
        let key = format!("links.{name}");
        if name == PATH_LINK {
            let what = "is the name of the link that [path] and [link] describe; take another";
            return Err(self.key_error(key, what));
        }
        if link.rtt.is_some() && link.path.is_some() {
            return Err(self.key_error(key, "has both rtt and path; give one"));
        }
        if link.link.queues != Queues::Path || link.link.end_rate.is_some() {
            return Err(self.key_error(key, "has no queues and no end_rate; [link] has"));
        }
        self.check_rates(&link.link, &key)?;
        match &link.path {
            Some(path) => self.check_path(path, &format!("{key}.path")),
            None => Ok(()),
        }
    }

    fn check_change(&self, change: &Change, key: &str) -> Result<(), ScenarioError> {
        let wrong = |name: &str, what: &str| Err(self.key_error(format!("{key}{name}"), what));
        let of_a_link = (&change.rtt, &change.rate, &change.loss, &change.outage)
            != (&None, &None, &None, &None);
        let flows = self.scenario.flow.len();
        match (change.flow, &change.via) {
            (None, None) if !of_a_link => {
                wrong("", "changes nothing; give rtt, rate, loss or outage")
            }
            (None, None) => match &change.link {
                Some(name) => self.check_name(name, &format!("{key}.link")),
                None => Ok(()),
            },
            (Some(_), None) => wrong(".via", "is missing: the flow's new route"),
            (None, Some(_)) => wrong(".flow", "is missing: the flow that takes it"),
            (Some(_), Some(_)) if of_a_link || change.link.is_some() => {
                wrong("", "is about a flow and a link; make it two changes")
            }
            (Some(flow), Some(_)) if flow as usize >= flows => {
                wrong(".flow", &format!("is {flow}; expected less than {flows}"))
            }
            (Some(_), Some(via)) => self.check_via(via, &format!("{key}.via")),
        }
    }

    fn check_via(&self, via: &[String], key: &str) -> Result<(), ScenarioError> {
        let distinct: BTreeSet<&String> = via.iter().collect();
        if via.is_empty() || distinct.len() < via.len() {
            let what = "crosses no link, or one twice; expected names such as [\"path\"]";
            return Err(self.key_error(key, what));
        }
        via.iter().try_for_each(|name| self.check_name(name, key))
    }

    fn check_name(&self, name: &str, key: &str) -> Result<(), ScenarioError> {
        let links = &self.scenario.links;
        if name == PATH_LINK || links.contains_key(name) {
            return Ok(());
        }
        let known: Vec<&str> =
            [PATH_LINK].into_iter().chain(links.keys().map(String::as_str)).collect();
        let hint = did_you_mean(name, known.iter().copied());
        let what = format!("there is no link \"{name}\"{hint}; there are {}", known.join(", "));
        Err(self.key_error(key, what))
    }
}
