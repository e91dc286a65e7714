//! Files that the keys of applications name. The application crate does not open files, so that
//! they are read here.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use skyhop_app::{App, Dash, Page, Predicted};

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::error::unreadable;
use crate::films::{film, given_film};
use crate::named::NamedScenario;

/// Largest list of object sizes in bytes; the longest valid one has 10,001 lines.
const MOST_BYTES: u64 = 1_000_000;

impl NamedScenario {
    /// Return the application with the content of its files loaded. `key` is the application's key
    /// in the scenario, for errors.
    ///
    /// # Errors
    /// The file does not exist, or its content is not valid.
    pub(crate) fn with_files(&self, app: App, key: &str) -> Result<App, ScenarioError> {
        Ok(match app {
            App::Page(page) => App::Page(self.with_sizes(page, key)?),
            App::Dash(dash) => App::Dash(self.with_film(dash, key)?),
            other => other,
        })
    }

    fn with_sizes(&self, page: Page, key: &str) -> Result<Page, ScenarioError> {
        let Some(name) = &page.file else { return Ok(page) };
        let key = format!("{key}.file");
        let Some(path) = find_file(self.base(), name) else {
            let what = format!(
                "there is no file \"{name}\", neither relative to the scenario nor in the current directory"
            );
            return Err(self.key_error(key, what));
        };
        let (mut text, unreadable) = (String::new(), |source| unreadable(&path, source));
        let file = File::open(&path).map_err(unreadable)?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MOST_BYTES {
            let what = format!("{}: is larger than 1 MB; expected a list of sizes", path.display());
            return Err(self.key_error(key, what));
        }
        let listed = Page::sizes_of(&text);
        let listed =
            listed.map_err(|what| self.key_error(key, format!("{}: {what}", path.display())))?;
        Ok(Page { listed, ..page })
    }

    fn with_film(&self, dash: Dash, key: &str) -> Result<Dash, ScenarioError> {
        let read = film(&dash.film, self.base(), &self.origin, &format!("{key}.film"))?;
        let dash = dash.with_film(read);
        dash.check_film().map_err(|(name, what)| self.key_error(format!("{key}.{name}"), what))?;
        let Predicted::Model(name) = &dash.predicted else { return Ok(dash) };
        let place = self.given_model(name).ok_or_else(|| {
            let what = format!(
                "there is no model \"{name}\", neither relative to the scenario nor in the current \
                 directory; expected a directory of `skyhop \
                 predict train`"
            );
            self.key_error(format!("{key}.predicted"), what)
        })?;
        Ok(dash.with_model(place.display().to_string()))
    }

    /// Find the user's model `name`: a directory, or the card in it.
    fn given_model(&self, name: &str) -> Option<PathBuf> {
        let places = [self.base().join(name), PathBuf::from(name)];
        places.into_iter().find(|place| !name.is_empty() && place.exists())
    }

    /// Replace the name of an application's model by an absolute path, if the name is that of a
    /// file or directory.
    pub(crate) fn make_model_path_absolute(&self, app: &mut serde_json::Value) {
        let Some(name) = app.get_mut("predicted") else { return };
        let whole = |path: &Path| std::path::absolute(path).ok();
        let given = name.as_str().and_then(|name| self.given_model(name));
        if let Some(whole) = given.as_deref().and_then(whole) {
            *name = serde_json::json!(whole.to_string_lossy());
        }
    }

    /// Replace the name of an application's film by an absolute path, if the name is that of a file
    /// or directory.
    pub(crate) fn make_film_path_absolute(&self, app: &mut serde_json::Value) {
        let Some(name) = app.get_mut("film") else { return };
        let whole = |path: &Path| std::path::absolute(path).ok();
        let given = name.as_str().and_then(|name| given_film(self.base(), name));
        if let Some(whole) = given.as_deref().and_then(whole) {
            *name = serde_json::json!(whole.to_string_lossy());
        }
    }
}
