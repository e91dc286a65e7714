//! Notes on a scenario's path that users need to know before they trust its results.

use skyhop_model::Relay;
use skyhop_orbit::Constellation;

use crate::ScenarioError;
use crate::catalogue;
use crate::named::NamedScenario;
use crate::types::{ConstellationPath, PathKind};

impl NamedScenario {
    /// Return a note for each feature that `[path]` uses although its constellation is not known to have it:
    /// inter-satellite links, and sites of other operators.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::path_request`].
    pub fn path_notes(&self) -> Result<Vec<String>, ScenarioError> {
        let PathKind::Constellation(path) = &self.scenario.path.kind else {
            return Ok(Vec::new());
        };
        let constellation = self.constellation()?;
        let mut notes = Vec::new();
        if path.relay == Relay::Isl && !constellation.isl {
            notes.push(format!(
                "{} has no links between satellites; relay = \"isl\" is computed as if it had",
                constellation.name
            ));
        }
        notes.extend(foreign_sites_note(path, &constellation));
        Ok(notes)
    }
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
    if path.relay == Relay::Access && is_foreign(&path.pops, &constellation.pops) {
        foreign.push(("pops", &path.pops));
    }
    let keys = foreign.iter().map(|(key, name)| format!("{key} = \"{name}\""));
    let keys = keys.collect::<Vec<_>>().join(" and ");
    (!foreign.is_empty()).then(|| {
        format!("{keys} are not known to serve {}: give lists of its own", constellation.name)
    })
}
