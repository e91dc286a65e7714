//! Files that applications name: they open none themselves.

use std::path::Path;

use skyhop_app::App;

use crate::ScenarioError;
use crate::films::{film, given_film};
use crate::named::NamedScenario;

impl NamedScenario {
    /// An application with what its file says. `key`: where the scenario has it.
    ///
    /// # Errors
    /// There is no such file, or it is none of its kind.
    pub(crate) fn with_files(&self, app: App, key: &str) -> Result<App, ScenarioError> {
        let App::Dash(dash) = app else { return Ok(app) };
        let read = film(&dash.film, self.base(), &self.origin, &format!("{key}.film"))?;
        let dash = dash.with_film(read);
        dash.check_film().map_err(|(name, what)| self.wrong(format!("{key}.{name}"), what))?;
        Ok(App::Dash(dash))
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
