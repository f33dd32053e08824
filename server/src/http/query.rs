//! Query strings. Unknown and repeated parameters are refused: a misspelt one must not be ignored.

use super::problem::ApiError;

/// The values of the parameters that a route takes.
#[derive(Debug)]
pub struct Query<const N: usize>([Option<String>; N]);

/// Reads a query string that takes only `names`.
///
/// # Errors
/// `invalid_request`, naming the parameter.
pub fn parse<const N: usize>(query: Option<&str>, names: [&'static str; N]) -> Result<Query<N>, ApiError> {
    let mut values = [const { None }; N];
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let Some(place) = names.iter().position(|known| *known == name) else {
            return Err(ApiError::field(&name, format!("Unknown parameter. This route takes: {}.", names.join(", "))));
        };
        if values[place].replace(value.into_owned()).is_some() {
            return Err(ApiError::field(&name, "The parameter is given twice."));
        }
    }
    Ok(Query(values))
}

impl<const N: usize> Query<N> {
    /// The value of the parameter at `place` in the names, converted.
    ///
    /// # Errors
    /// What `convert` says.
    pub fn get<T>(&self, place: usize, convert: impl FnOnce(&str) -> Result<T, ApiError>) -> Result<Option<T>, ApiError> {
        self.0[place].as_deref().map(convert).transpose()
    }
}
