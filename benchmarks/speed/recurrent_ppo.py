"""Recurrent PPO of sb3-contrib on CartPole until it is solved, with torch's LSTM and after `weft.accelerate`.

An episode counts the steps that the pole stands, 500 at most; CartPole is solved at a mean of 475 over the last 100
episodes. The agent takes one step of a few rows in each call, and learns from short sequences, also step by step. Both
runs of a seed take turns, on one thread; times are CPU time. Needs `sb3-contrib`.

    python -m benchmarks.speed.recurrent_ppo [--seeds 2] [--steps 200000]
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import torch

import weft

SOLVED, EPISODES = 475.0, 100


class Learnt(NamedTuple):
    seconds: float  # of CPU time
    steps: int
    reward: float  # the mean of the last episodes

    def __str__(self) -> str:
        state = "solved" if self.reward >= SOLVED else f"at {self.reward:.0f}"
        return f"{state} after {self.steps:,} steps, {self.seconds:.1f} s, {self.steps / self.seconds:,.0f} steps/s"


def learn(seed: int, most_steps: int, *, accelerated: bool) -> Learnt:
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class UntilSolved(BaseCallback):
        solved = False

        def _on_rollout_end(self) -> None:
            self.solved = mean_reward(self.model) >= SOLVED

        def _on_step(self) -> bool:
            return not self.solved

    environments = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    model = RecurrentPPO(
        "MlpLstmPolicy", environments, seed=seed, device="cpu", n_steps=128, batch_size=256, n_epochs=8,
        learning_rate=1e-3, gae_lambda=0.98, policy_kwargs={"lstm_hidden_size": 64}, stats_window_size=EPISODES,
    )  # fmt: skip
    if accelerated:
        weft.accelerate(model.policy)
    start = time.process_time()
    model.learn(most_steps, callback=UntilSolved())
    return Learnt(time.process_time() - start, model.num_timesteps, mean_reward(model))


def mean_reward(model: Any) -> float:
    rewards = [episode["r"] for episode in model.ep_info_buffer]
    return sum(rewards) / EPISODES if len(rewards) == EPISODES else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200_000, help="after which an agent stops")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(given.seeds):
        for accelerated in (False, True):
            name = "weft.accelerate" if accelerated else "torch.nn.LSTM"
            print(f"seed {seed}, {name}: {learn(seed, given.steps, accelerated=accelerated)}", flush=True)


if __name__ == "__main__":
    main()
