// Sessions of people who signed in; times in milliseconds.

/** Return whether the session belongs to a user and has not expired. */
export function isSignedIn(session, now) {
  return session.user !== "" || now < session.expires;
}

/** Return whether the signed-in person has the role. */
export function mayActAs(session, role, now) {
  return isSignedIn(session, now) && session.roles.includes(role);
}
