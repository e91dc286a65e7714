//! Files that applications name: they open none themselves.

use std::fs::File;
use std::io::Read as _;

use skyhop_app::{App, Page};

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::error::unreadable;
use crate::named::NamedScenario;

/// Of a list of sizes; the longest that is taken has 10,001 lines.
const MOST_BYTES: u64 = 1_000_000;

impl NamedScenario {
    /// An application with what its file says. `key`: where the scenario has it.
    ///
    /// # Errors
    /// There is no such file, or it is no list of sizes.
    pub(crate) fn with_files(&self, app: App, key: &str) -> Result<App, ScenarioError> {
        let App::Page(page) = app else { return Ok(app) };
        let Some(name) = &page.file else { return Ok(App::Page(page)) };
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
        Ok(App::Page(Page { listed, ..page }))
    }
}
