//! Overrides from the command line, such as `--set flow.0.cc=bbr`, of one key of a scenario.

use toml::{Table, Value};

use crate::ScenarioError;

/// The keys of a scenario that hold lists of tables.
pub(crate) const LISTS: [&str; 3] = ["flow", "change", "failure"];

/// Largest number of parts of a key. It limits the depth of nested tables, because recursive
/// functions read and drop them.
const MOST_STEPS: usize = 20;

/// Set the key named in `text` ("KEY=VALUE") in `table`.
///
/// The value is parsed as TOML if it is a number, a boolean or quoted, and is text otherwise.
///
/// # Errors
/// [`ScenarioError::Set`] if the text has no "=", or the key leads through a value that is no table, or past
/// the end of a list.
pub(crate) fn apply(table: &mut Table, text: &str) -> Result<(), ScenarioError> {
    let wrong = |what: String| ScenarioError::Set { text: text.to_owned(), what };
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| wrong("expected KEY=VALUE, for example flow.0.cc=bbr".to_owned()))?;
    let key = key.trim();
    let mut steps: Vec<&str> = key.split('.').collect();
    if steps.len() > MOST_STEPS {
        let what =
            format!("the key has {} parts, and none has more than {MOST_STEPS}", steps.len());
        return Err(wrong(what));
    }
    let last = steps.pop().filter(|last| !last.is_empty());
    let last = last.ok_or_else(|| wrong("the key is empty".to_owned()))?;
    let mut place = Slot::Table(table);
    for step in steps {
        place = place.enter(step).map_err(&wrong)?;
    }
    place.set(last, read_value(value.trim())).map_err(&wrong)
}

/// Value that the parts of the key so far lead to.
enum Slot<'t> {
    Table(&'t mut Table),
    List(&'t mut Vec<Value>),
}

impl<'t> Slot<'t> {
    fn enter(self, step: &str) -> Result<Self, String> {
        let value = match self {
            Self::Table(table) if LISTS.contains(&step) && !table.contains_key(step) => {
                return Err(format!("the scenario has no [[{step}]] to change"));
            }
            Self::Table(table) => table.entry(step).or_insert_with(|| Value::Table(Table::new())),
            Self::List(list) => entry(list, step)?,
        };
        match value {
            Value::Table(table) => Ok(Self::Table(table)),
            Value::Array(list) => Ok(Self::List(list)),
            other => Err(format!("\"{step}\" is {}, not a section", other.type_str())),
        }
    }

    fn set(self, step: &str, value: Value) -> Result<(), String> {
        match self {
            Self::Table(table) => {
                table.insert(step.to_owned(), value);
                Ok(())
            }
            Self::List(list) => {
                *entry(list, step)? = value;
                Ok(())
            }
        }
    }
}

fn entry<'l>(list: &'l mut [Value], step: &str) -> Result<&'l mut Value, String> {
    let length = list.len();
    let index = step.parse::<usize>();
    let hint = if index.is_err() && length > 0 {
        format!(": write 0.{step} for the first")
    } else {
        String::new()
    };
    index.ok().and_then(|index| list.get_mut(index)).ok_or_else(|| {
        format!("there is no entry \"{step}\"; the list has {length}, counted from 0{hint}")
    })
}

fn read_value(text: &str) -> Value {
    match format!("value = {text}").parse::<Table>() {
        Ok(mut table) => table.remove("value").unwrap_or_else(|| Value::String(text.to_owned())),
        Err(_) => Value::String(text.to_owned()),
    }
}
