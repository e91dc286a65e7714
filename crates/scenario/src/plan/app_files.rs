//! Files that applications name: they open none themselves.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use skyhop_app::{App, Dash, Page, Predicted};

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::error::unreadable;
use crate::films::{film, given_film};
use crate::named::NamedScenario;

/// Of a list of sizes; the longest that is taken has 10,001 lines.
const MOST_BYTES: u64 = 1_000_000;

impl NamedScenario {
    /// An application with what its file says. `key`: where the scenario has it.
    ///
    /// # Errors
    /// There is no such file, or it is none of its kind.
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
            let what = format!("there is no file \"{name}\", neither beside the scenario nor here");
            return Err(self.wrong(key, what));
        };
        let (mut text, unreadable) = (String::new(), |source| unreadable(&path, source));
        let file = File::open(&path).map_err(unreadable)?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MOST_BYTES {
            let what = format!("{}: is larger than 1 MB; expected a list of sizes", path.display());
            return Err(self.wrong(key, what));
        }
        let listed = Page::sizes_of(&text);
        let listed =
            listed.map_err(|what| self.wrong(key, format!("{}: {what}", path.display())))?;
        Ok(Page { listed, ..page })
    }

    fn with_film(&self, dash: Dash, key: &str) -> Result<Dash, ScenarioError> {
        let read = film(&dash.film, self.base(), &self.origin, &format!("{key}.film"))?;
        let dash = dash.with_film(read);
        dash.check_film().map_err(|(name, what)| self.wrong(format!("{key}.{name}"), what))?;
        let Predicted::Model(name) = &dash.predicted else { return Ok(dash) };
        let place = self.given_model(name).ok_or_else(|| {
            let what = format!(
                "there is no model \"{name}\", neither beside the scenario nor here; expected a directory of `skyhop \
                 predict train`"
            );
            self.wrong(format!("{key}.predicted"), what)
        })?;
        Ok(dash.with_model(place.display().to_string()))
    }

    /// The directory of the model called `name`, or the card in it.
    fn given_model(&self, name: &str) -> Option<PathBuf> {
        let places = [self.base().join(name), PathBuf::from(name)];
        places.into_iter().find(|place| !name.is_empty() && place.exists())
    }

    /// Gives the model that tells an application's player of the rate ahead its whole name.
    pub(crate) fn name_model_wholly(&self, app: &mut serde_json::Value) {
        let Some(name) = app.get_mut("predicted") else { return };
        let whole = |path: &Path| std::path::absolute(path).ok();
        let given = name.as_str().and_then(|name| self.given_model(name));
        if let Some(whole) = given.as_deref().and_then(whole) {
            *name = serde_json::json!(whole.to_string_lossy());
        }
    }

    /// Gives the film of an application that is a file or a directory beside the scenario its whole name.
    pub(crate) fn name_film_wholly(&self, app: &mut serde_json::Value) {
        let Some(name) = app.get_mut("film") else { return };
        let whole = |path: &Path| std::path::absolute(path).ok();
        let given = name.as_str().and_then(|name| given_film(self.base(), name));
        if let Some(whole) = given.as_deref().and_then(whole) {
            *name = serde_json::json!(whole.to_string_lossy());
        }
    }
}
