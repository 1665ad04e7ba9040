"""Pairs of questions that are not the same: what differs stands in a clause that looks like courtesy, or is one word.

Every second pair was put away while rules of courtesy were tried (docs/45-curate.md)."""

# ruff: noqa: E501
from __future__ import annotations

_ENGLISH = """
Hi there, I am allergic to nuts, what can I order? | Hi there, I am allergic to milk, what can I order?
Good morning, my flight was cancelled, whom do I call? | Good morning, my train was cancelled, whom do I call?
Sorry I can't sleep, what helps? | Sorry my knee hurts, what helps?
Excuse me, I lost my passport. Where do I go? | Excuse me, I lost my wallet. Where do I go?
Hello all, I live in Ohio. Do I need a licence? | Hello all, I live in Utah. Do I need a licence?
Thanks for fixing the sink, how much do I owe? | Thanks for fixing the roof, how much do I owe?
Please help, my cat won't eat. What should I do? | Please help, my dog won't eat. What should I do?
I am a beginner, which camera should I buy? | I am a professional, which camera should I buy?
My boss asked me to fire someone. What must I do? | My boss asked me to hire someone. What must I do?
I hope you can help, I am pregnant. Is coffee safe? | I hope you can help, I am diabetic. Is coffee safe?
Quick question: I am 17. Can I vote here? | Quick question: I am 18. Can I vote here?
Hey folks, we are moving abroad, what insurance do we need? | Hey folks, we are getting married, what insurance do we need?
I was wondering, after surgery, when can I drive? | I was wondering, before surgery, when can I drive?
Dear team, I paid twice. When do I get my money? | Dear team, I paid nothing. When do I get my money?
I'd be grateful for help with the visa, how long does it take? | I'd be grateful for help with the mortgage, how long does it take?
Pardon me, I am deaf. Which seat is best? | Pardon me, I am blind. Which seat is best?
Sorry, I am vegan. What do you serve? | Sorry, I am Jewish. What do you serve?
Would you mind the window being open? | Would you mind the door being open?
Can someone help with my divorce, what are the fees? | Can someone help with my adoption, what are the fees?
My wife wants to know if she may work here. | My son wants to know if he may work here.
Kindly note that I smoke. Is the policy valid? | Kindly note that I ski. Is the policy valid?
Thank you for the flowers, who sent them? | Thank you for the chocolates, who sent them?
I'm new here and have no car, how do I get to work? | I'm new here and have no bike, how do I get to work?
I appreciate quiet rooms, which hotel do you suggest? | I appreciate big rooms, which hotel do you suggest?
Any idea why the screen is black? | Any idea why the screen is blue?
It hurts when I swallow, any advice? | It hurts when I breathe, any advice?
As a tenant, can I paint the walls? | As a landlord, can I paint the walls?
For my mother, which chair is comfortable? | For my baby, which chair is comfortable?
I feel dizzy. Should I see a doctor? | I feel lonely. Should I see a doctor?
My friend is in prison, how do I write to him? | My friend is in hospital, how do I write to him?
Did the teacher call the parent? | Did the parent call the teacher?
Does tea go well before dinner? | Does tea go well after dinner?
Is it legal to record a call? | Is it illegal to record a call?
May I open the box with scissors? | May I open the box without scissors?
Do more people rent in Berlin? | Do fewer people rent in Berlin?
Should I lock the door when I leave? | Should I lock the door when I arrive?
Which lake is the deepest? | Which lake is the shallowest?
Did Rome defeat Carthage? | Did Carthage defeat Rome?
Who lent Maria the car? | To whom did Maria lend the car?
Is the shop open on Sunday? | Is the shop open on Monday?
How do I turn the heating on? | How do I turn the heating off?
Which bank gives the highest interest? | Which bank takes the highest interest?
I have a fever, may I fly? | I have no fever, may I fly?
How do I import rows from Excel? | How do I import rows into Excel?
What should a child eat in the morning? | What should a child eat in the evening?
Is the water hot enough for tea? | Is the water cold enough for tea?
Can I enter with my visa expired? | Can I leave with my visa expired?
Are there buses to the airport? | Are there buses from the airport?
Is the painting older than the church? | Is the church older than the painting?
I am in a hurry, which train is fastest? | I am on a budget, which train is fastest?
Hello, greetings from Chile, what is the weather like there? | Hello, greetings from Norway, what is the weather like there?
I'm asking for a vegetarian friend, what is on the menu? | I'm asking for a diabetic friend, what is on the menu?
My professor says light is a wave, is that true? | My professor says light is a particle, is that true?
I apologize for the noise, when is the rent due? | I apologize for the noise, when is the deposit due?
After my stroke, could you tell me what exercise is safe? | After my birth, could you tell me what exercise is safe?
I would like to thank you for the loan, when must I repay? | I would like to thank you for the grant, when must I repay?
Good evening, the toilet is blocked, who pays? | Good evening, the window is broken, who pays?
Hi, it's urgent: the tyre burst. What now? | Hi, it's urgent: the boiler burst. What now?
No offence, but are men taller here? | No offence, but are women taller here?
"""

_CHINESE = """
您好，我对花生过敏，能吃什么？ | 您好，我对牛奶过敏，能吃什么？
早上好，我的航班取消了，该找谁？ | 早上好，我的火车取消了，该找谁？
不好意思，我失眠，怎么办？ | 不好意思，我膝盖疼，怎么办？
打扰了，我丢了护照，要去哪里？ | 打扰了，我丢了钱包，要去哪里？
大家好，我住在青岛，需要办证吗？ | 大家好，我住在太原，需要办证吗？
谢谢你修好水管，要付多少钱？ | 谢谢你修好屋顶，要付多少钱？
求助，我的猫不吃东西，怎么办？ | 求助，我的狗不吃东西，怎么办？
我是新手，买哪款相机好？ | 我是专业的，买哪款相机好？
领导让我辞退员工，该怎么做？ | 领导让我招聘员工，该怎么做？
希望帮帮我，我怀孕了，能喝咖啡吗？ | 希望帮帮我，我有糖尿病，能喝咖啡吗？
问一下，我17岁，能投票吗？ | 问一下，我18岁，能投票吗？
各位，我们要移民，买什么保险？ | 各位，我们要结婚，买什么保险？
想问问，手术前能开车吗？ | 想问问，手术后能开车吗？
客服你好，我付了两次，什么时候退钱？ | 客服你好，我没付款，什么时候退钱？
麻烦看下签证，要多久？ | 麻烦看下贷款，要多久？
打扰一下，我耳聋，坐哪里好？ | 打扰一下，我眼瞎，坐哪里好？
抱歉，我吃素，有什么菜？ | 抱歉，我信教，有什么菜？
请教离婚，费用是多少？ | 请教收养，费用是多少？
我妻子想知道能不能在这里工作。 | 我儿子想知道能不能在这里工作。
请注意我抽烟，保险有效吗？ | 请注意我滑雪，保险有效吗？
谢谢你的花，是谁送的？ | 谢谢你的巧克力，是谁送的？
我刚来，没有车，怎么上班？ | 我刚来，没有房，怎么上班？
帮忙看看手机，为什么黑屏？ | 帮忙看看电视，为什么黑屏？
我咽东西痛，怎么办？ | 我呼吸痛，怎么办？
作为租客，可以刷墙吗？ | 作为房东，可以刷墙吗？
给妈妈用，哪种椅子舒服？ | 给宝宝用，哪种椅子舒服？
我头晕，要看医生吗？ | 我孤独，要看医生吗？
朋友在监狱，怎么给他写信？ | 朋友在医院，怎么给他写信？
急急急，孩子发烧，吃什么药？ | 急急急，孩子拉肚子，吃什么药？
谢谢医生，高血压，能运动吗？ | 谢谢医生，低血压，能运动吗？
老师给家长打电话了吗？ | 家长给老师打电话了吗？
饭前喝茶好吗？ | 饭后喝茶好吗？
电话录音合法吗？ | 电话录音违法吗？
用剪刀能打开盒子吗？ | 不用剪刀能打开盒子吗？
柏林租房的人更多吗？ | 柏林租房的人更少吗？
离开时要锁门吗？ | 到达时要锁门吗？
哪个湖最深？ | 哪个湖最浅？
罗马打败了迦太基吗？ | 迦太基打败了罗马吗？
邻居为什么起诉我？ | 我为什么起诉邻居？
商店周日开门吗？ | 商店周一开门吗？
暖气怎么打开？ | 暖气怎么关上？
哪家银行存款利息最高？ | 哪家银行贷款利息最高？
我发烧，能坐飞机吗？ | 我没发烧，能坐飞机吗？
怎么从表格导入数据？ | 怎么向表格导入数据？
孩子早上吃什么好？ | 孩子晚上吃什么好？
泡茶的水够热吗？ | 泡茶的水够凉吗？
签证过期了能入境吗？ | 签证过期了能出境吗？
有去机场的大巴吗？ | 有从机场来的大巴吗？
画比教堂更老吗？ | 教堂比画更老吗？
我赶时间，坐哪趟车好？ | 我没钱，坐哪趟车好？
智利的朋友问好，天气怎么样？ | 挪威的朋友问好，天气怎么样？
替吃素的朋友问，菜单上有什么？ | 替糖尿病的朋友问，菜单上有什么？
教授说光是波，对吗？ | 教授说光是粒子，对吗？
抱歉吵到您，房租什么时候交？ | 抱歉吵到您，押金什么时候交？
中风以后，请问做什么运动安全？ | 生产以后，请问做什么运动安全？
感谢你们的贷款，什么时候还？ | 感谢你们的助学金，什么时候还？
晚上好，马桶堵了，谁付钱？ | 晚上好，窗户破了，谁付钱？
紧急求助，轮胎爆了，怎么办？ | 紧急求助，锅炉爆了，怎么办？
冒昧问一句，这里男人高吗？ | 冒昧问一句，这里女人高吗？
我在准备婚礼，应该请谁？ | 我在准备葬礼，应该请谁？
"""


def _pairs(lines: str) -> list[tuple[str, str]]:
    return [
        (one.strip(), other.strip()) for one, _, other in (line.partition("|") for line in lines.split("\n") if line)
    ]


ENGLISH, CHINESE = _pairs(_ENGLISH), _pairs(_CHINESE)
