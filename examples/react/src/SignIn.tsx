import { useState } from "react";
import { type Client, TurnfastError } from "turnfast-client";

export function SignIn({ client, onDone }: { client: Client; onDone: () => void }) {
  const [problem, setProblem] = useState("");
  async function signIn(form: FormData) {
    try {
      await client.login(String(form.get("name")), String(form.get("password")));
      onDone();
    } catch (error) {
      if (!(error instanceof TurnfastError)) throw error;
      setProblem(error.message);
    }
  }
  return (
    <form className="signin" action={signIn}>
      <label>
        Name <input name="name" autoComplete="username" required />
      </label>
      <label>
        Password <input name="password" type="password" autoComplete="current-password" required />
      </label>
      <button>Sign in</button>
      {problem && <p role="alert">{problem}</p>}
    </form>
  );
}
