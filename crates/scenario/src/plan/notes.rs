//! Notes on a scenario's path that users need to know before they trust its results.

use skyhop_experiment::LinkPlan;
use skyhop_link::Loss;
use skyhop_model::{Direction, PATH_LINK, Relay};
use skyhop_orbit::Constellation;
use skyhop_path::network::NetworkRequest;
use skyhop_path::topology::count_shells;
use skyhop_path::{Frame, PathTrace};
use skyhop_units::{Duration, Instant};

use crate::ScenarioError;
use crate::catalogue;
use crate::named::NamedScenario;
use crate::plan::schedule::rate_of;
use crate::types::{ConstellationPath, LinkSection, PathKind};

impl NamedScenario {
    /// Return a note for each feature that `[path]` uses although its constellation is not known to have it
    /// (inter-satellite links, and sites of other operators), and for each measured value of its path file that `[link]`
    /// replaces.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::path_request`], and a path file that cannot be read.
    pub fn path_notes(&self) -> Result<Vec<String>, ScenarioError> {
        match &self.path_section()?.kind {
            PathKind::Constellation(path) => self.constellation_notes(path),
            PathKind::Fixed(_) | PathKind::Access(_) => Ok(Vec::new()),
            PathKind::Trace(path) => {
                Ok(replaced_values("link", &self.scenario.link, &self.path_file(path)?))
            }
        }
    }

    /// Return the notes of [`NamedScenario::path_notes`], and those on the path files of all links.
    pub(crate) fn notes_over(&self, links: &[LinkPlan]) -> Result<Vec<String>, ScenarioError> {
        let mut notes = match &self.path_section()?.kind {
            PathKind::Constellation(path) => self.constellation_notes(path)?,
            PathKind::Fixed(_) | PathKind::Access(_) | PathKind::Trace(_) => Vec::new(),
        };
        for link in links {
            if link.name == PATH_LINK {
                notes.extend(replaced_values("link", &self.scenario.link, &link.trace));
            } else if let Some(own) = self.scenario.links.get(&link.name) {
                let key = format!("links.{}", link.name);
                notes.extend(replaced_values(&key, &own.link, &link.trace));
            }
        }
        Ok(notes)
    }

    fn constellation_notes(&self, path: &ConstellationPath) -> Result<Vec<String>, ScenarioError> {
        let constellation = self.constellation()?;
        let mut notes = Vec::new();
        if path.relay == Relay::Isl && !constellation.isl {
            notes.push(format!(
                "{} has no links between satellites; relay = \"isl\" is computed as if it had",
                constellation.name
            ));
        }
        if path.relay == Relay::Access && path.access.is_none() {
            notes.push(
                "relay = \"access\" without access.profile is geometry alone: no waits for transmissions, no hole at \
                 every reassignment, no loss; relay = \"starlink\" has them as measured"
                    .to_owned(),
            );
        }
        notes.extend(foreign_sites_note(path, &constellation));
        Ok(notes)
    }
}

/// Return a note if no lasers join the shells of a network.
pub(crate) fn shells_apart(request: &NetworkRequest) -> Option<String> {
    let shells = count_shells(&request.constellation, request.start);
    let is_apart = request.has_lasers && request.options.isl_shells.is_apart();
    (shells > 1 && is_apart).then(|| {
        format!(
            "no laser joins the {shells} shells of {}: a route uses the satellites of one shell; \
             network.isl_shells = \"nearest\" joins them",
            request.constellation.name
        )
    })
}

/// Return a note for each key of a link that replaces what was measured on its path.
fn replaced_values(key: &str, link: &LinkSection, trace: &PathTrace) -> Vec<String> {
    let mut notes = Vec::new();
    let path = match trace.header.access {
        Some(_) => "access profile",
        None => "path file",
    };
    let mut tell = |name: &str, value: String, what: &str, mean: String| {
        notes.push(format!(
            "{key}.{name} = {value} replaces the {what} of the {path}, whose mean is {mean}: leave {key}.{name} out \
             to keep that"
        ));
    };
    let own = link.back.clone().unwrap_or_default();
    // A rate of [link] is that of both directions, unless [link.back] has one.
    let there = (Direction::Forward, "rate", link.keys.rate);
    let back = match own.rate {
        Some(rate) => (Direction::Back, "back.rate", Some(rate)),
        None => (Direction::Back, "rate", link.keys.rate),
    };
    let means = [there, back].map(|(direction, name, rate)| {
        let mean = mean(trace, |frame| {
            let rate = rate_of(trace, frame, direction)?;
            Some(rate.bits_per_second() as f64)
        });
        Some((name, rate?, format!("{:.3} Mbit/s", mean? / 1e6)))
    });
    match means {
        [Some((name, rate, there)), Some((name_back, _, back))] if name == name_back => {
            let both = if there == back { there } else { format!("{there}, back {back}") };
            tell(name, format!("\"{rate}\""), "rate", both);
        }
        means => {
            for (name, rate, mean) in means.into_iter().flatten() {
                tell(name, format!("\"{rate}\""), "rate", mean);
            }
        }
    }
    let mut tell_loss = |name: &str, loss: Option<Loss>, mean: Option<f64>| {
        let (Some(loss), Some(mean)) = (loss, mean) else { return };
        let of_bursts = match loss {
            Loss::Independent(_) => String::new(),
            Loss::GilbertElliott(_) => format!(" (mean {:.2} %)", loss.mean() * 100.0),
        };
        tell(name, format!("{loss}{of_bursts}"), "loss", format!("{:.2} %", mean * 100.0));
    };
    tell_loss("loss", link.keys.loss, mean(trace, |frame| frame.loss));
    tell_loss("back.loss", own.loss, mean(trace, |frame| frame.loss_back));
    notes
}

/// Return the mean over time of a value that the frames of a path may have; `None` if none has it.
fn mean(trace: &PathTrace, value: impl Fn(&Frame) -> Option<f64>) -> Option<f64> {
    let end = Instant::START + Duration::from_nanos(trace.header.duration_ns);
    let (mut sum, mut time) = (0.0, 0.0);
    for (index, frame) in trace.frames.iter().enumerate() {
        let until = trace.frames.get(index + 1).map_or(end, |next| next.at);
        let lasts = until.saturating_since(frame.at).as_secs_f64();
        if let Some(value) = value(frame) {
            sum += value * lasts;
            time += lasts;
        }
    }
    (time > 0.0).then(|| sum / time)
}

/// Return a note about lists of sites that come with skyhop and belong to another operator than the
/// constellation.
fn foreign_sites_note(path: &ConstellationPath, constellation: &Constellation) -> Option<String> {
    let shipped = catalogue::site_list_names();
    let is_foreign = |name: &String, own: &Option<String>| {
        own.as_ref() != Some(name) && shipped.iter().any(|known| known == name)
    };
    let mut foreign = Vec::new();
    if path.relay.uses_gateways() && is_foreign(&path.gateways, &constellation.gateways) {
        foreign.push(("gateways", &path.gateways));
    }
    if path.relay.is_access() && is_foreign(&path.pops, &constellation.pops) {
        foreign.push(("pops", &path.pops));
    }
    let keys = foreign.iter().map(|(key, name)| format!("{key} = \"{name}\""));
    let keys = keys.collect::<Vec<_>>().join(" and ");
    (!foreign.is_empty()).then(|| {
        format!("{keys} are not known to serve {}: give lists of its own", constellation.name)
    })
}
