//! Origin of a path's satellites, which is written into the path's header, and from which the
//! constellation can be rebuilt.

use std::path::Path;
use std::{fs, io};

use sha2::{Digest as _, Sha256};
use skyhop_orbit::Constellation;
use skyhop_path::{Origin, PathHeader};

use crate::named::NamedScenario;
use crate::parse::scenario_from_json;
use crate::{ScenarioError, catalogue};

impl NamedScenario {
    /// Return the origin of `[path]`'s satellites, for the path's header.
    ///
    /// # Errors
    /// A file can no longer be read.
    pub(crate) fn origin_of_satellites(&self) -> Result<Origin, ScenarioError> {
        let mut path = self.scenario.to_json()["path"].take();
        self.make_files_of_path_absolute(&mut path);
        let name = path["constellation"].as_str().unwrap_or_default();
        let comes_with_skyhop = catalogue::constellation_names().iter().any(|known| known == name);
        let file = Some(name).filter(|name| !comes_with_skyhop && Path::new(name).is_file());
        let file = file.map(str::to_owned);
        let sha256 = file.as_ref().map(|file| sha256(Path::new(file))).transpose()?;
        Ok(Origin { path, file, sha256 })
    }
}

/// Rebuild the constellation of a computed path from its header.
///
/// # Errors
/// The constellation's file is missing or has changed, or the path was imported rather than computed.
pub fn constellation_of(header: &PathHeader) -> Result<Constellation, ScenarioError> {
    let named = header.constellation.as_deref().unwrap_or_default();
    let wrong = |what: String| ScenarioError::key("the path", "constellation", what);
    let (mut path, duration_ns) =
        (serde_json::json!({ "constellation": named }), header.duration_ns);
    if let Some(origin) = &header.origin {
        path = origin.path.clone();
        if let (Some(file), Some(digest)) = (&origin.file, &origin.sha256) {
            match sha256(Path::new(file)) {
                Ok(now) if now == *digest => {}
                Ok(_) => {
                    return Err(wrong(format!(
                        "{file} is not what it was when the path was computed (SHA-256 {digest}): where its \
                         satellites are is unknown; compute the path again"
                    )));
                }
                Err(error) => {
                    return Err(wrong(format!(
                        "{error}; the path was computed over its satellites"
                    )));
                }
            }
        }
    }
    let run = serde_json::json!({ "duration": format!("{duration_ns} ns") });
    let text = serde_json::json!({ "path": path, "run": run }).to_string();
    scenario_from_json(&text, "the path", &[])?.constellation()
}

/// SHA-256 of a file, in hexadecimal digits.
fn sha256(file: &Path) -> Result<String, ScenarioError> {
    let unreadable = |source| ScenarioError::Read { path: file.to_owned(), source };
    let (mut opened, mut digest) = (fs::File::open(file).map_err(unreadable)?, Sha256::new());
    io::copy(&mut opened, &mut digest).map_err(unreadable)?;
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
